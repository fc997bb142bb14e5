"""The bridge to timm: any network, at any image size and class count."""

import sys

import pytest
import torch

from bort import nets


@pytest.mark.parametrize("size", [64, 96])
@pytest.mark.parametrize(
    "name", ["vgg16", "resnet50", "deit_small_patch16_224", "swin_small_patch4_window7_224", "convnext_atto"]
)
def test_any_size_and_class_count(name, size):
    with torch.device("meta"):
        net = nets.create(f"timm/{name}", classes=7, image_size=size)
        assert net(torch.empty(2, 3, size, size)).shape == (2, 7)


def test_grey_images_and_timms_own_options():
    with torch.device("meta"):
        net = nets.create("timm/resnet18", channels=1, classes=10, image_size=28, drop_path_rate=0.1)
        assert net(torch.empty(2, 1, 28, 28)).shape == (2, 10)


def test_unknown_names_get_their_neighbours():
    with pytest.raises(ValueError, match="timm has no network called 'resnet51'"):
        nets.create("timm/resnet51")
    with pytest.raises(ValueError, match=r"near it are .*deit_small"):
        nets.create("timm/deit_small")


def test_without_timm(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match=r"bort\[vision\]"):
        nets.create("timm/resnet18")
