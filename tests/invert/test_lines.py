"""Networks of one-dimensional convolutions, on signals (N, channels, length)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bort import invert
from tests.invert.test_backtrack import seeds


def network(channels=16):
    torch.manual_seed(0)
    body = nn.Conv1d(2, channels, 5), nn.BatchNorm1d(channels), nn.ReLU(), nn.Conv1d(channels, 6, 3), nn.ReLU()
    return nn.Sequential(*body, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, 3)).double().eval()


@settings(max_examples=25)
@given(channels=st.integers(1, 40), length=st.integers(10, 40))
def test_channels_come_first(channels, length):
    """Also where the number of channels is that of a square grid of tokens."""
    net, x = network(channels), seeds(2, 2, length)
    trace = invert.Backtracker(net, "1").trace(x)
    assert trace.grid == invert.Grid("one row", (channels, 1, length - 4))
    torch.testing.assert_close(trace.maps[:, :, 0], trace.features)
    torch.testing.assert_close(trace.grid.from_map(trace.maps), trace.features)
    torch.testing.assert_close(trace.forward(trace.with_maps(trace.maps)), net(x))


def test_decomposition():
    net, x = network(), seeds(2, 2, 64)
    features = net[:3](x)
    parts = invert.decompose(net, x, "1", k=5)
    values, channels = features.amax(dim=2).topk(5, dim=1)
    assert torch.equal(parts.channels, channels)
    torch.testing.assert_close(parts.values, values)
    assert parts.signals.shape == (2, 5, 2, 64)
    assert (parts.places[..., 0] == 0).all()
    assert torch.equal(parts.places[..., 1], features.argmax(dim=2).gather(1, channels))
    assert invert.synthesize(net, x[:1], x[1:], "1", k=5).images.shape == (1, 2, 64)


def test_effects():
    net, x = network(), seeds(1, 2, 64)
    effects = invert.channel_effects(invert.Backtracker(net, "1").trace(x), 0)
    assert len(effects) == 16
    off = net[:3](x)
    off[:, 7] = 0
    torch.testing.assert_close(effects[7], (net[3:](off) - net(x))[0, 0])


def test_where_the_channels_are_is_not_guessed():
    """An activation function says nothing of it, and a single row of an image is no map of it."""
    net = network()
    with pytest.raises(ValueError, match=r"'2' has features of shape \(1, 16, 28\): that is no map .* Choose a conv"):
        _ = invert.Backtracker(net, "2").trace(seeds(1, 2, 32)).grid
    rows = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.Flatten(2), nn.Conv1d(8, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    )
    with pytest.raises(ValueError, match=r"'2' has features of shape \(1, 4, 36\): that is no map"):
        _ = invert.Backtracker(rows.double(), "2").trace(seeds(1, 1, 8, 8)).grid


def test_embeddings_are_tokens():
    net = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu").double()
    assert invert.grid_of(net, "norm2", seeds(1, 9, 8), seeds(1, 9, 8)).shape == (8, 3, 3)
