"""Methods side by side."""

import pytest
import torch

from bort import explain, measure


def test_each_method_as_by_itself(net, x):
    calls = []
    options = {"rise": {"masks": 8, "cells": 4}, "sat": {"k": 4}}
    evaluations = measure.evaluate(
        net, x, ["sat", "rise"], 3, steps=7, options=options, progress=lambda *call: calls.append(call)
    )
    assert list(evaluations) == ["sat", "rise"]
    for name, evaluation in evaluations.items():
        maps = explain.get(name)(net, x, 3, **options[name])
        torch.testing.assert_close(evaluation.maps, maps)
        for score in measure.SCORES:
            single = measure.deletion_insertion(net, x, maps, 3, steps=7, score=score)
            torch.testing.assert_close(evaluation.scores[score].deletion_curves, single.deletion_curves)
            assert evaluation.scores[score].means == single.means
    assert calls == [("rise", 8, 24), ("rise", 16, 24), ("rise", 24, 24)]


def test_the_predicted_class_is_explained(net, x):
    predicted = net(x).argmax(dim=1)
    one, other = (measure.evaluate(net, x, ["cam"], target)["cam"] for target in (None, predicted))
    assert torch.equal(one.maps, other.maps)
    assert torch.equal(one.scores["logit"].insertion, other.scores["logit"].insertion)


def test_a_registered_method(net, x):
    with explain.local_registry():
        explain.register("brightness", lambda model, images, target=None: images.mean(dim=1))
        evaluation = measure.evaluate(net, x, ["brightness"])["brightness"]
    assert torch.equal(evaluation.maps, x.mean(dim=1))


def test_mistakes(net, x):
    with pytest.raises(ValueError, match="no method is called 'sut'; there are sat"):
        measure.evaluate(net, x, ["sut"])
    with pytest.raises(ValueError, match="options for 'rise', which is not among the methods sat"):
        measure.evaluate(net, x, ["sat"], options={"rise": {}})
