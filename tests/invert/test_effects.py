"""The effects of channels, against passes in which a plain hook switches each channel off."""

import pytest
import torch

from bort import invert
from tests.invert.test_forward import images, made, plain


@pytest.mark.parametrize("name", ["resnet, batch norm", "resnet, block", "ViT", "NHWC", "densenet"])
def test_against_switching_each_channel_off(name):
    net, layer, module = made(name)
    x = images(1)
    trace = invert.Backtracker(net, layer, "gradient").trace(x)
    features, expected = trace.features, []
    for channel in range(trace.grid.shape[0]):
        off = features.clone()
        if trace.grid.layout == "channels first":
            off[:, channel] = 0
        else:
            off[:, trace.grid.prefix :, ..., channel] = 0
        expected.append(plain(net, module, x, off)[0, 3] - net(x)[0, 3].detach())
    effects = invert.channel_effects(trace, 3)
    torch.testing.assert_close(effects, torch.stack(expected))
    torch.testing.assert_close(invert.channel_effects(trace, 3, [3, 2]), effects[[3, 2]])


def test_gradient_times_activation_where_the_rest_is_linear():
    """Behind the last block of a ResNet there are a mean and a linear layer: the approximation is exact."""
    net, _, _ = made("resnet, block")
    trace = invert.Backtracker(net, "layer4", "gradient").trace(images(1))
    torch.testing.assert_close(invert.approximate_effects(trace, 1), invert.channel_effects(trace, 1))


def test_where_it_is_not_linear_it_has_the_slope():
    """A channel scaled by 1 − h changes the logit by h times the approximation, for small h."""
    net, layer, _ = made("ViT")
    trace = invert.Backtracker(net, layer, "gradient").trace(images(1))
    effects, h = invert.approximate_effects(trace, 2), 1e-6
    edited = trace.maps.repeat(4, 1, 1, 1)
    for channel in range(4):
        edited[channel, channel] *= 1 - h
    slopes = (trace.forward(trace.with_maps(edited))[:, 2] - trace.outputs[0, 2]) / h
    torch.testing.assert_close(slopes, effects[:4], rtol=1e-3, atol=1e-6)
    with pytest.raises(ValueError, match="trace with rule=\"gradient\", not 'guided'"):
        invert.approximate_effects(invert.Backtracker(net, layer).trace(images(1)), 2)


def test_steps_and_channels_that_are_zero(net, x):
    trace = invert.Backtracker(net, "conv5").trace(x[:1])
    calls = []
    effects = invert.channel_effects(trace, 0, step=lambda *call: calls.append(call))
    active = int(trace.maps[0].flatten(1).any(dim=1).sum())
    assert active < trace.grid.shape[0], "some channels are 0"
    assert not effects[~trace.maps[0].flatten(1).any(dim=1)].any()
    assert [done for done, _ in calls[:2]] == [2, 6]
    assert calls[-1] == (active, active)

    def stop(done, total):
        raise TimeoutError

    with pytest.raises(TimeoutError):
        invert.channel_effects(trace, 0, step=stop)
    with pytest.raises(ValueError, match="effects are of one image, the trace is of 3"):
        invert.channel_effects(invert.Backtracker(net, "conv5").trace(x), 0)
