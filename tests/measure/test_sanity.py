"""Networks with random weights, how alike two maps are, and random maps."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from bort import explain, measure


def normalised_net(depth=12):
    """Trained long enough for its statistics to fit weights that are larger than usual."""
    torch.manual_seed(0)
    layers = []
    for n in range(depth):
        layers += [nn.Conv2d(3 if n == 0 else 16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.Conv2d):
                module.weight *= 30
        net.train()
        for _ in range(30):
            net(torch.randn(16, 3, 12, 12))
    return net.eval()


def test_every_parameter_is_permuted(net):
    twin = measure.randomised(net)
    for (name, before), after in zip(net.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(before.flatten().sort().values, after.flatten().sort().values), name
        if before.numel() > 10 and len(before.unique()) > 1:
            assert (before == after).double().mean() < 0.5, name
        if before.numel() > 1000:
            assert abs(np.corrcoef(before.detach().flatten(), after.detach().flatten())[0, 1]) < 0.15, name


def test_the_model_is_left_as_it_was():
    net, x = normalised_net(2).train(), torch.randn(4, 3, 8, 8)
    net(x).sum().backward()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    twin = measure.randomised(net, x=x)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(module.training for module in (*net.modules(), *twin.modules()))
    assert all(p.grad is not None for p in net.parameters())
    assert all(p.grad is None and p.requires_grad for p in twin.parameters())
    assert twin[1].momentum == 0.1


def test_seeds(net):
    one, same, other = (
        torch.cat([p.flatten() for p in measure.randomised(net, seed).parameters()]) for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_shared_weights_stay_shared():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    twin = measure.randomised(net)
    assert twin[1].weight is twin[0].weight
    assert twin[0].weight is not net[0].weight


def test_outputs_with_batchnorm():
    """Measured statistics give each layer outputs of mean 0 and variance 1, in several passes nearly so; without images the
    outputs are finite."""
    net, x = normalised_net(), torch.randn(64, 3, 12, 12)
    assert torch.isfinite(measure.randomised(net)(x)).all()
    with explain.memory_budget(cpu=10 * 16 * 144):
        in_passes = measure.randomised(net, x=x)
    for twin, tolerance in ((measure.randomised(net, x=x), 0.01), (in_passes, 0.3)):
        normalised = twin[:2](x)
        assert normalised.mean(dim=(0, 2, 3)).abs().max() < 0.01
        assert (normalised.var(dim=(0, 2, 3)) - 1).abs().max() < 0.01
        deepest = twin[:-4](x)
        assert deepest.mean(dim=(0, 2, 3)).abs().max() < tolerance
        assert (deepest.var(dim=(0, 2, 3)) - 1).abs().max() < tolerance
        assert int(twin[1].num_batches_tracked) > 0


def test_statistics_of_frozen_layers():
    """torchvision keeps the statistics of a frozen layer as plain buffers."""
    layers = pytest.importorskip("torchvision.ops")
    frozen = layers.FrozenBatchNorm2d(3)
    frozen.running_var.fill_(1e-12)
    twin = measure.randomised(nn.Sequential(frozen), x=torch.randn(2, 3, 4, 4))
    assert twin[0].running_var.tolist() == [1, 1, 1]


def test_one_image_is_too_few_for_statistics():
    with pytest.raises(ValueError, match="x has one image: give two or more"):
        measure.randomised(normalised_net(1), x=torch.randn(1, 3, 8, 8))
    measure.randomised(nn.Linear(3, 2), x=torch.randn(1, 3))


def test_a_wrapped_model_is_copied_without_its_wrapper():
    net = nn.Sequential(nn.Linear(3, 2))
    twin = measure.randomised(nn.DataParallel(net))
    assert isinstance(twin, nn.Sequential)
    assert twin(torch.ones(1, 3)).shape == (1, 2)


def test_maps_of_random_networks_differ(net, x):
    maps = explain.integrated_gradients(net, x, 3, steps=8)
    others = explain.integrated_gradients(measure.randomised(net), x, 3, steps=8)
    same = measure.map_similarity(maps, explain.integrated_gradients(net, x, 3, steps=8))
    assert same.means == pytest.approx((1, 1))
    assert abs(measure.map_similarity(maps, others).means[0]) < 0.5


@given(
    seed=st.integers(0, 2**31),
    count=st.integers(1, 4),
    height=st.integers(2, 9),
    width=st.integers(1, 9),
    levels=st.sampled_from([2, 5, 1000]),
)
def test_similarity_is_scipys(seed, count, height, width, levels):
    """With few levels nearly all values are tied."""
    draws = np.random.default_rng(seed)
    a, b = draws.integers(-levels, levels + 1, (2, count, height, width)).astype(float)
    result = measure.map_similarity(torch.from_numpy(a), torch.from_numpy(b))
    for n in range(count):
        for found, change in ((result.signed, lambda maps: maps), (result.absolute, np.abs)):
            one, other = change(a[n]).ravel(), change(b[n]).ravel()
            is_constant = np.ptp(one) == 0 or np.ptp(other) == 0
            expected = np.nan if is_constant else stats.spearmanr(one, other).statistic
            np.testing.assert_allclose(found[n].item(), expected, atol=1e-12)


def test_similarity_in_closed_form():
    """ρ = 1 − 6 Σ d² / (n (n² − 1)) without ties: the ranks 1 2 3 4 against 2 1 4 3 have Σ d² = 4, so 1 − 24 / 60."""
    a, b = (torch.tensor(values).view(1, 2, 2) for values in ([1.0, 2.0, 3.0, 4.0], [20.0, 10.0, 40.0, 30.0]))
    assert measure.map_similarity(a, b).means == pytest.approx((0.6, 0.6))
    turned = measure.map_similarity(a, -b)
    assert turned.means == pytest.approx((-0.6, 0.6))


def test_identical_and_independent_maps():
    maps = torch.randn(8, 32, 32)
    assert measure.map_similarity(maps, maps).means == pytest.approx((1, 1), abs=1e-12)
    assert measure.map_similarity(maps, 5 * maps.half().float().exp()).means[0] == pytest.approx(1, abs=1e-4)
    independent = measure.map_similarity(maps, torch.randn(8, 32, 32))
    deviation = 1 / (32 * 32 - 1) ** 0.5  # of one image's correlation
    assert independent.signed.abs().max() < 4.5 * deviation
    assert independent.absolute.abs().max() < 4.5 * deviation


def test_constant_maps_do_not_count():
    maps = torch.stack([torch.arange(4.0).view(2, 2), torch.ones(2, 2)])
    result = measure.map_similarity(maps, maps)
    assert result.signed.isnan().tolist() == [False, True]
    assert result.means == pytest.approx((1, 1))
    assert np.isnan(measure.map_similarity(maps[1:], maps[1:]).means).all()


def test_mistakes_in_maps():
    maps = torch.rand(2, 3, 3)
    with pytest.raises(ValueError, match=r"maps of shapes \(2, 3, 3\) and \(1, 3, 3\)"):
        measure.map_similarity(maps, maps[:1])
    with pytest.raises(ValueError, match="NaN or Inf"):
        measure.map_similarity(maps, maps * torch.nan)


def test_random_maps(net, x):
    maps = measure.random_map(x, seed=1)
    assert torch.equal(maps, measure.random_map(x, seed=1))
    assert not torch.equal(maps, measure.random_map(x, seed=2))
    many = measure.random_map(torch.zeros(50, 3, 20, 20))
    assert stats.kstest(many.flatten().numpy(), "uniform").pvalue > 0.01
    assert abs(np.corrcoef(many[0].flatten(), many[1].flatten())[0, 1]) < 0.2
    curves = measure.deletion_insertion(net, x, maps, 3, steps=7, score="logit")
    assert curves.counted == 3
    assert "random" not in explain.names()
    with pytest.raises(ValueError, match=r"\(N, channels, height, width\)"):
        measure.random_map(x[0])
