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
        ValueError, match="no network is called 'lenet6'; there are acnn-base, acnn-small, lenet, timm/"
    ):
        nets.create("lenet6")
    with pytest.raises(ValueError, match="image_size=64"):
        nets.create("lenet", image_size=64)
    with pytest.raises(ValueError, match="last='softmax': choose linear or relu"):
        nets.create("lenet", last="softmax")


def test_behind_a_last_relu_a_class_can_die():
    torch.manual_seed(0)
    net, plain = nets.create("lenet", last="relu"), nets.create("lenet")
    plain.load_state_dict(net.state_dict())
    x = torch.randn(8, 1, 28, 28)
    torch.testing.assert_close(net(x), plain(x).relu(), rtol=0, atol=0)
    with torch.no_grad():
        net.head.bias[3] = -10.0
    torch.nn.functional.cross_entropy(net(x), torch.full((8,), 3)).backward()
    assert not net.head.weight.grad[3].any(), "nothing of the loss brings it back"
    assert net.head.weight.grad.any()
