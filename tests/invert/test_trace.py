"""A trace's maps, its salient channels, and signals from them, in every layout of features."""

import pytest
import torch
from torch.nn import functional as F

from bort import invert, nets


@pytest.fixture
def trace(net, x):
    return invert.Backtracker(net, "conv5").trace(x)


def test_maps_of_channels_first_are_the_features(trace):
    assert torch.equal(trace.maps, trace.features)
    assert trace.grid.layout == "channels first"
    assert trace.grid.shape == trace.features.shape[1:]


def test_a_layer_without_a_map(net, x):
    trace = invert.Backtracker(net, "head").trace(x)
    with pytest.raises(ValueError, match=r"the layer 'head' has features of shape \(3, 10\): that is no map"):
        _ = trace.grid
    assert trace(torch.ones(3, 10, dtype=x.dtype)).shape == x.shape, "a seed in the features' own shape still goes back"


def test_salient_channels(trace):
    """Against max pooling: the k largest maxima, and where they are."""
    salient = trace.salient(4)
    y = F.max_pool2d(trace.maps, trace.maps.shape[2:]).flatten(1)
    torch.testing.assert_close(salient.values, y.topk(4).values)
    assert torch.equal(salient.channels, y.topk(4).indices)
    for n in range(3):
        for channel, value, place in zip(salient.channels[n], salient.values[n], salient.places[n], strict=True):
            assert trace.maps[n, channel].flatten()[place] == value


def test_a_later_part_of_the_order(trace):
    whole, part = trace.salient(7), trace.salient(3, start=4)
    for name in ("channels", "values", "places"):
        assert torch.equal(getattr(part, name), getattr(whole, name)[:, 4:])
    count = trace.grid.shape[0]
    with pytest.raises(ValueError, match=rf"k=3: the layer has {count} channels, choose from 1 to 2 after the first"):
        trace.salient(3, start=count - 2)
    with pytest.raises(
        ValueError, match=rf"start={count}: the layer has {count} channels, choose from 0 to {count - 1}"
    ):
        trace.salient(1, start=count)


def test_seeds_of_salient_channels(trace):
    """One map with all channels, or one for each; written out as a loop."""
    salient = trace.salient(3)
    single = torch.zeros(3, *trace.maps.shape, dtype=torch.float64)
    for n in range(3):
        for j, (channel, place) in enumerate(zip(salient.channels[n], salient.places[n], strict=True)):
            single[j, n, channel].view(-1)[place] = 1.0
    assert torch.equal(salient.seeds(), single)
    assert torch.equal(salient.seeds(2.5), 2.5 * single)
    assert torch.equal(salient.seed(), single.sum(dim=0))
    assert torch.equal(salient.seed(2.5), 2.5 * single.sum(dim=0))
    assert torch.equal(salient.seed(salient.values), trace.maps * single.sum(dim=0))
    elsewhere = salient.seed(places=torch.zeros_like(salient.places))
    assert torch.equal(elsewhere[:, :, 0, 0], single.sum(dim=(0, 3, 4)))
    assert elsewhere.sum() == 9


@pytest.mark.parametrize(
    ("name", "layer", "layout", "shape"),
    [
        ("timm/deit_tiny_patch16_224", "blocks.1", "tokens", (192, 4, 4)),
        ("timm/deit_tiny_distilled_patch16_224", "blocks.1", "tokens", (192, 4, 4)),
        ("timm/swin_tiny_patch4_window7_224", "layers.1", "channels last", (192, 8, 8)),
        ("timm/resnet18", "layer2", "channels first", (128, 8, 8)),
    ],
)
def test_other_layouts(name, layer, layout, shape):
    """Tokens and channels-last features as maps: there and back, slopes, signals of maps, and a decomposition."""
    torch.manual_seed(0)
    model = nets.create(name, classes=3, image_size=64)
    images = torch.randn(2, 3, 64, 64)
    trace = invert.Backtracker(model, layer).trace(images)
    grid = trace.grid
    assert (grid.layout, grid.shape) == (layout, shape)
    assert grid == invert.grid_of(model, layer, trace.features)
    assert trace.maps.shape == (2, *shape)
    features = grid.from_map(trace.maps)
    torch.testing.assert_close(features[:, grid.prefix :], trace.features[:, grid.prefix :])
    assert not features[:, : grid.prefix].any()
    assert trace.slope(torch.tensor([0, 2])).shape == (2, *shape)
    torch.testing.assert_close(trace.back(trace.maps), trace(features))
    seeds = trace.salient(3).seeds()
    assert trace.back(seeds).shape == (3, 2, 3, 64, 64)
    signals = invert.decompose(model, images, layer, k=3).signals
    torch.testing.assert_close(signals, trace.back(seeds).movedim(0, 1))
