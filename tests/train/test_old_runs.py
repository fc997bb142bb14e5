"""Runs and recipes of version 0.1.0 (tests/fixtures): they load, evaluate and go on, and their networks are the same."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import timm.optim
import torch
from torch import nn

from bort import bortify, data, nets, train
from bort.train import _optimizer
from bort.train.recipes import Net
from tests.train import small

OLD = Path(__file__).parents[1] / "fixtures" / "0.1.0"
CPU = train.Runtime(device="cpu")


@pytest.mark.parametrize("name", ["sgd", "bort-s"])
def test_they_load_and_evaluate(name):
    run = train.load(OLD / name)
    assert run.is_complete
    assert run.recipe.net == Net("acnn-small", {"width": 0.004, "narrowest": 6})
    digits = data.load("mnist5k")
    with torch.no_grad():
        logits = run.model(digits.normalise(digits.test_images))
    assert train.recognised(logits, digits.test_labels).mean().item() == run.accuracy
    loss = nn.functional.cross_entropy(logits, digits.test_labels).item()
    assert loss == pytest.approx(run.history[-1]["test_loss"], rel=1e-5)
    images, labels = run.examples(20)
    assert images.shape == (20, 1, 28, 28)
    assert labels.unique().numel() == 10
    assert run.view().class_names == tuple("0123456789")


def test_a_complete_run_is_left_alone(tmp_path):
    path = shutil.copytree(OLD / "sgd", tmp_path / "sgd")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    train.fit(train.read_recipe(path), path, CPU)
    assert {file: file.read_bytes() for file in before} == before


def test_a_stopped_run_goes_on_to_its_end(tmp_path):
    """From step 20 of 32: weights and history are those of the run that was not stopped, up to rounding."""
    path = shutil.copytree(OLD / "stopped", tmp_path / "stopped")
    steps = []
    run = train.fit(train.read_recipe(path), path, CPU, on_step=steps.append)
    assert steps == list(range(21, 33))
    expected = train.load(OLD / "bort-s")
    for name, value in expected.model.state_dict().items():
        torch.testing.assert_close(run.model.state_dict()[name], value, rtol=1e-4, atol=1e-6)
    assert len(run.history) == len(expected.history) == 2
    for record, wanted in zip(run.history, expected.history, strict=True):
        assert record.keys() - {"pull"} == wanted.keys(), "the pull is recorded since 0.2.0"
        assert (record["epoch"], record["step"]) == (wanted["epoch"], wanted["step"])
        for key in ("loss", "accuracy", "top5", "test_loss", "lr", "residual", "sigma"):
            assert record[key] == pytest.approx(wanted[key], rel=1e-4), key
    assert [start["from_step"] for start in run.environment] == [0, 20]
    assert json.loads((path / "recipe.json").read_text())["net"]["options"] == {"width": 0.004, "narrowest": 6}


@pytest.mark.parametrize("name", ["lamb", "bort-l"])
def test_a_run_with_timms_lamb_goes_on(tmp_path, monkeypatch, name):
    """Version 0.1.0 used timm's: moments and count of steps are the same."""
    optim = replace(small.OPTIM, name=name, momentum=0.0, constraint=0.1 if name == "bort-l" else 0.0)
    recipe = replace(small.RECIPE, optim=optim)
    whole = small.fit(tmp_path / "whole", recipe)
    old = timm.optim.Lamb if name == "lamb" else bortify(timm.optim.Lamb)
    with monkeypatch.context() as patch:
        patch.setattr(_optimizer, "_class", lambda _: lambda params, capturable, **options: old(params, **options))
        with pytest.raises(train.Interrupted):
            small.fit(tmp_path / "old", recipe, on_step=small.stop_at(7))
    run = small.fit(tmp_path / "old", recipe)
    for key, value in whole.model.state_dict().items():
        torch.testing.assert_close(run.model.state_dict()[key], value, rtol=1e-4, atol=1e-6)


def test_the_recipe_of_a_lenet():
    recipe = train.read_recipe(OLD / "recipe-lenet.json")
    assert recipe.net == Net("lenet", {"activation": "tanh", "pool": "average", "last": "relu"})
    assert recipe.paper.top1 == 57.35
    x = torch.randn(4, 3, 32, 32)
    outputs = []
    for options in (recipe.net.options, {"activation": "tanh", "pool": "average", "last": "relu"}, {}):
        torch.manual_seed(0)
        outputs.append(nets.create("lenet", channels=3, image_size=32, **options)(x))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_the_recipe_of_a_deit():
    recipe = train.read_recipe(OLD / "recipe-deit.json")
    assert recipe == train.recipes.get("imagenet-deit-s-bort-a")
    with torch.device("meta"):
        net = nets.create(recipe.net.name, classes=1000, image_size=224, **recipe.net.options)
    assert net.blocks[-1].drop_path1.drop_prob == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {}),
        ({"width": 0.5}, {"width": 0.5}),
        ({"width": 0.5, "narrowest": 1}, {"width": 0.5}),
        ({"width": 0.5, "narrowest": 4}, {"width": 0.5, "narrowest": 4}),
        ({"width": 1.0, "narrowest": 4}, {}),  # without a width, version 0.1.0 did not use it
        ({"drop_path": 0.0, "activation": "relu"}, {}),
        ({"drop_path": 0.2, "last": "relu"}, {"drop_path_rate": 0.2, "last": "relu"}),
    ],
)
def test_fields_become_options(fields, options):
    values = train.recipes.get("mnist-lenet-sgd").to_dict()
    values["net"] = {"name": "lenet", **fields}
    assert train.Recipe.from_dict(values).net == Net("lenet", options)


def test_old_fields_beside_options_are_refused():
    values = train.recipes.get("mnist-lenet-sgd").to_dict()
    values["net"] |= {"width": 0.5}
    with pytest.raises(ValueError, match=r"recipe\.net has no field 'width'; there are name, options"):
        train.Recipe.from_dict(values)
