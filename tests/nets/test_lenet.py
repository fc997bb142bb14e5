import pytest
import torch

from bort import nets


@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32)])
def test_shapes_and_size(channels, size):
    net = nets.create("lenet", channels=channels, image_size=size)
    assert net(torch.zeros(2, channels, size, size)).shape == (2, 10)
    assert sum(p.numel() for p in nets.create("lenet").parameters()) == 61_706  # LeNet-5's own count


def test_unknown_names_are_said():
    with pytest.raises(
        ValueError, match="no network is called 'lenet6'; there are acnn-base, acnn-small, lenet and timm/<name>"
    ):
        nets.create("lenet6")
    with pytest.raises(ValueError, match="image_size=64"):
        nets.create("lenet", image_size=64)
