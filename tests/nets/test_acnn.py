import pytest
import torch

from bort import nets


@pytest.mark.parametrize(
    ("channels", "size", "widths"),
    [(1, 28, (8, 24, 288, 864, 2592)), (3, 32, (24, 64, 512, 1536, 4608))],
)
def test_the_papers_table(channels, size, widths):
    with torch.device("meta"):
        net = nets.create("acnn-small", channels=channels, image_size=size)
        top = net.features(torch.empty(2, channels, size, size))
        assert top.shape == (2, widths[-1], 6, 6)
        assert net(torch.empty(2, channels, size, size)).shape == (2, 10)
    assert tuple(conv.out_channels for conv in (net.conv1, net.conv2, net.conv3, net.conv4, net.conv5)) == widths


def test_width_narrows_it():
    net = nets.create("acnn-small", width=0.25)
    assert net.conv5.out_channels == 648
    assert net(torch.zeros(1, 1, 28, 28)).shape == (1, 10)


def test_what_it_cannot_be_is_said():
    with pytest.raises(ValueError, match="image_size=64"):
        nets.create("acnn-small", image_size=64)
    with pytest.raises(ValueError, match="width=0"):
        nets.create("acnn-small", width=0)
