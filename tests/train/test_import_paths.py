"""Networks and data sets of other packages in a recipe."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from bort import data
from bort.train.recipes import Augment, Data, Net
from tests.train.small import RECIPE, dataset, fit

PACKAGE = '''
import torch
from torch import nn
from bort.data import Dataset

def network(channels, classes, image_size, hidden=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, hidden), nn.ReLU(), nn.Linear(hidden, classes))

def halves():
    """8 × 8 pixels, bright at the left or at the right."""
    labels = torch.arange(60) % 2
    images = torch.zeros(60, 1, 8, 8, dtype=torch.uint8)
    for image, label in zip(images, labels):
        image[:, :, 4 * label : 4 * label + 4] = 200
    return Dataset("halves", images[:40], labels[:40], images[40:], labels[40:], names=("left", "right"))
'''


@pytest.mark.slow
def test_trained_and_loaded_in_processes_that_know_only_the_path(tmp_path):
    (tmp_path / "halves_and_net.py").write_text(PACKAGE)

    def python(*arguments):
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        ended = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    settings = {
        "--net.name": "halves_and_net:network",
        "--net.options.hidden": "6",
        "--data.name": "halves_and_net:halves",
        "--data.image-size": "8",
        "--data.classes": "2",
        "--batch": "8",
        "--epochs": "3",
        "--device": "cpu",
        "--out": "run",
    }
    python("-m", "bort", "train", "mnist5k-lenet-bort-s", *(text for pair in settings.items() for text in pair))
    recipe = json.loads((tmp_path / "run/recipe.json").read_text())
    assert recipe["net"] == {"name": "halves_and_net:network", "options": {"hidden": 6}}
    program = """
from bort import train
run = train.load("run")
images, labels = run.examples(4)
print(run.model[1].out_features, run.accuracy, tuple(images.shape), *run.view().class_names)
"""
    assert python("-c", program).split("\n")[0] == "6 1.0 (4, 1, 8, 8) left right"


def test_an_option_reaches_the_network_or_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"tests\.train\.small:lenet_with_dropout has no option 'depth'; it has none"):
        fit(tmp_path / "run", replace(RECIPE, net=replace(RECIPE.net, options={"depth": 2})))
    with pytest.raises(ValueError, match=r"net\.name='acnn-small' cannot be made with {'width': 'wide'}"):
        fit(tmp_path / "run", replace(RECIPE, net=Net("acnn-small", {"width": "wide"})))
    assert not (tmp_path / "run").exists(), "refused before anything is written"


def two_colours(root):
    """A folder of red and green images, written below ``root``."""
    files = []
    for number in range(8):
        colour = np.zeros((16, 16, 3), np.uint8)
        colour[..., number % 2] = 200
        Image.fromarray(colour).save(root / f"{number}.png")
        files.append((f"{number}.png", number % 2))
    return data.Folder("two colours", root, ("red", "green"), files[:6], files[6:])


FOLDER = replace(
    RECIPE,
    net=Net("acnn-base", {"width": 0.05}),
    data=Data(f"{__name__}:two_colours", 16, classes=2),
    epochs=1,
    batch=3,
    augment=Augment(crop_and_flip=True, erase=0.5),
)


def test_a_folder_is_augmented_and_read_by_the_path(tmp_path):
    run = fit(tmp_path / "run", FOLDER, data_root=tmp_path, workers=0)
    assert run.is_complete
    assert run.environment[0]["data"]["name"] == "two colours"
    images, labels = run.examples(2, data_root=tmp_path)
    assert images.shape == (2, 3, 16, 16)
    assert labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (replace(RECIPE, augment=FOLDER.augment), "only images of a folder are augmented"),
        (replace(FOLDER, data=replace(FOLDER.data, normalise=False)), "images of a folder are always normalised"),
    ],
)
def test_settings_of_the_other_kind_of_data_are_refused_when_it_is_loaded(tmp_path, recipe, message):
    with pytest.raises(ValueError, match=message):
        fit(tmp_path / "run", recipe, data_root=tmp_path)


def test_images_that_are_not_normalised(tmp_path):
    recipe = replace(RECIPE, epochs=1, data=replace(RECIPE.data, normalise=False))
    images, _ = fit(tmp_path, recipe).examples(5)
    torch.testing.assert_close(images, dataset().test_images[[0, 10, 20, 30, 40]] / 255)
