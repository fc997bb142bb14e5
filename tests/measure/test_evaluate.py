"""Methods side by side."""

import pytest
import torch
from torch import nn

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


def untrained(last):
    """A classifier whose last layer is constant."""
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).double()
    nn.init.zeros_(net[-1].weight)
    nn.init.constant_(net[-1].bias, last)
    return net


def test_constant_maps_are_reported(x):
    """A head that starts at 0: CAM and Integrated Gradients are 0 everywhere, SAT, which does not use the head, is not."""
    with pytest.warns(UserWarning, match="is the same number everywhere") as caught:
        evaluations = measure.evaluate(untrained(5.0), x, ["cam", "ig", "sat"], steps=4)
    sentences = [str(warning.message) for warning in caught]
    assert [" ".join(sentence.split()[:5]) for sentence in sentences] == ["The map of cam is", "The map of ig is"]
    assert all("for 3 of 3 images" in sentence for sentence in sentences)
    assert [evaluation.constant for evaluation in evaluations.values()] == [3, 3, 0]
    assert measure.notes(evaluations) == sentences


def test_one_note_for_all_methods_of_images_without_a_relative_score(x):
    with pytest.warns(UserWarning, match="images") as caught:
        measure.evaluate(untrained(0.0), x, ["cam", "sat"], steps=4)
    relative = [str(warning.message) for warning in caught if "relative" in str(warning.message)]
    assert len(relative) == 1
    assert "3 of 3 images have no relative score" in relative[0]
