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


def test_the_papers_table_of_acnn_base():
    with torch.device("meta"):
        net = nets.create("acnn-base")
        x = torch.empty(2, 3, 224, 224)
        shapes = []
        for number in range(1, 13):
            x = getattr(net, f"conv{number}")(x)
            shapes.append(tuple(x.shape[1:3]))
        assert net(torch.empty(2, 3, 224, 224)).shape == (2, 1000)
    assert not net.padded
    widths = [96, 96, 96, 256, 256, 256, 384, 384, 384, 1024, 1024, 1000]
    assert shapes == list(zip(widths, [75, 75, 37, 35, 35, 17, 15, 15, 7, 5, 5, 5], strict=True))


@pytest.mark.parametrize(("size", "padded"), [(16, True), (64, True), (127, True), (128, False), (160, False)])
def test_acnn_base_on_smaller_images(size, padded):
    with torch.device("meta"):
        net = nets.create("acnn-base", classes=100, image_size=size, width=0.5)
        assert net(torch.empty(1, 3, size, size)).shape == (1, 100)
    assert net.padded == padded


def test_acnn_base_is_relu_conv_and_a_pool():
    torch.manual_seed(0)
    net = nets.create("acnn-base", classes=5, image_size=32, width=0.05)
    x = torch.randn(2, 3, 32, 32)
    by_hand = x
    for number in range(1, 13):
        by_hand = getattr(net, f"conv{number}")(by_hand).clamp(min=0)
    assert torch.equal(net(x), by_hand.amax(dim=(2, 3)))
    with pytest.raises(ValueError, match="image_size=8"):
        nets.create("acnn-base", image_size=8)
    with pytest.raises(ValueError, match="width=-1"):
        nets.create("acnn-base", width=-1)


@pytest.mark.parametrize(("scale", "least", "most"), [(1.0, 0.0, 0.05), (2.0, 0.3, 3.0)])
def test_what_is_left_of_the_signal_behind_twelve_relus(scale, least, most):
    """With WᵀW = I each ReLU takes half of the energy; WᵀW = 2·I gives it back."""
    torch.manual_seed(0)
    net = nets.create("acnn-base", classes=100, image_size=64)
    for layer in net.children():
        torch.nn.init.orthogonal_(layer.weight, gain=scale**0.5)
    with torch.no_grad():
        left = net.features(torch.randn(4, 3, 64, 64)).square().mean().sqrt()
    assert least <= left <= most
