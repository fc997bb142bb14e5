"""SAT against algorithm 1 of the paper, written as a loop."""

import pytest
import torch
from torch.nn import functional as F

from bort import explain, invert, nets


def algorithm_1(net, image, k, value, threshold):
    """Line by line, one channel at a time."""
    g = invert.Backtracker(net, "conv5")
    z = g.features(image[None])[0]
    pairs = []
    y = F.max_pool2d(z, z.shape[1:]).flatten()
    for i in y.topk(k).indices.tolist():
        z0 = torch.zeros_like(z)
        z0[i].view(-1)[z[i].argmax()] = value
        signal = g(image[None], z0[None])[0].abs().sum(dim=0)
        pairs.append(((signal > threshold * signal.max()).double(), y[i]))
    return sum(weight * mask for mask, weight in pairs)


@pytest.mark.parametrize(("k", "value", "threshold"), [(1, 1.0, 0.1), (9, 1.0, 0.3), (9, 5.0, 0.0)])
def test_sat_is_algorithm_1(net, x, k, value, threshold):
    maps = explain.sat(net, x, layer="conv5", k=k, value=value, threshold=threshold)
    for image, saliency in zip(x, maps, strict=True):
        torch.testing.assert_close(saliency, algorithm_1(net, image, k, value, threshold))


def test_other_k_and_threshold_need_no_network(net, x):
    tracked = explain.track(net, x, k=9)
    assert tracked.layer == "conv5"
    torch.testing.assert_close(tracked.map(4, 0.2), explain.sat(net, x, k=4, threshold=0.2))
    with pytest.raises(ValueError, match="k=10: 9 channels were tracked"):
        tracked.map(10)
    with pytest.raises(ValueError, match="threshold=1: must be from 0 to below 1"):
        tracked.map(9, 1)


def test_sat_takes_all_channels_of_a_narrow_layer(x):
    net = nets.create("lenet").double()
    torch.testing.assert_close(explain.sat(net, x), explain.sat(net, x, k=16))
    with pytest.raises(ValueError, match="k=17: the layer has 16 channels"):
        explain.sat(net, x, k=17)
    with pytest.raises(ValueError, match=r"value=0: must be above 0"):
        explain.sat(net, x, value=0)
