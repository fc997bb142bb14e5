"""Methods beside each other."""

import pytest
import torch

from bort import explain, measure


def test_each_method_as_if_alone(net, x):
    seen = []
    options = {"rise": {"masks": 8, "cells": 4}, "sat": {"k": 4}}
    found = measure.evaluate(
        net, x, ["sat", "rise"], 3, steps=7, options=options, progress=lambda *call: seen.append(call)
    )
    assert list(found) == ["sat", "rise"]
    for name, each in found.items():
        maps = explain.get(name)(net, x, 3, **options[name])
        torch.testing.assert_close(each.maps, maps)
        for score in ("probability", "logit", "relative"):
            alone = measure.deletion_insertion(net, x, maps, 3, steps=7, score=score)
            torch.testing.assert_close(each.scores[score].deletion_curves, alone.deletion_curves)
            assert each.scores[score].means == alone.means
    assert seen == [("rise", 8, 24), ("rise", 16, 24), ("rise", 24, 24)]


def test_all_explain_the_class_that_the_model_says(net, x):
    said = net(x).argmax(dim=1)
    one, other = (measure.evaluate(net, x, ["cam"], target)["cam"] for target in (None, said))
    assert torch.equal(one.maps, other.maps)
    assert torch.equal(one.scores["logit"].insertion, other.scores["logit"].insertion)


def test_a_method_of_ones_own(net, x, monkeypatch):
    monkeypatch.setattr("bort.explain._registry._METHODS", dict(explain._registry._METHODS))
    explain.register("brightness", lambda model, images, target=None: images.mean(dim=1))
    found = measure.evaluate(net, x, ["brightness"])["brightness"]
    assert torch.equal(found.maps, x.mean(dim=1))


def test_mistakes(net, x):
    with pytest.raises(ValueError, match="no method is called 'sut'; there are sat"):
        measure.evaluate(net, x, ["sut"])
    with pytest.raises(ValueError, match="options for 'rise', which is not among the methods sat"):
        measure.evaluate(net, x, ["sat"], options={"rise": {}})
