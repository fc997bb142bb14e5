"""What is measured, against torch.linalg.svdvals in float64, the audit and the optimizer's own residuals."""

import math
import warnings

import pytest
import torch
from torch import nn

import bort
from bort import monitor, penalty


class Net(nn.Module):
    """A wide and a tall layer, a grouped and a transposed convolution, and one of more than 256 rows and columns."""

    def __init__(self):
        super().__init__()
        self.wide, self.tall, self.large = nn.Conv2d(3, 8, 3), nn.Linear(5, 12), nn.Linear(300, 280)
        self.grouped, self.up = nn.Conv2d(8, 12, 3, groups=4), nn.ConvTranspose2d(6, 5, 2)
        self.head = nn.Linear(12, 4)


def singular_values(weight, blocks=1, transposed=False):
    matrices = weight.detach().double().reshape(blocks, weight.shape[0] // blocks, -1)
    return torch.linalg.svdvals(matrices.mT if transposed else matrices)


def spectra(net):
    return {
        "wide.weight": singular_values(net.wide.weight),
        "tall.weight": singular_values(net.tall.weight),
        "large.weight": singular_values(net.large.weight),
        "grouped.weight": singular_values(net.grouped.weight, blocks=4),
        "up.weight": singular_values(net.up.weight, transposed=True),
    }


def rms(sigma):
    return (sigma**2 - 1).square().mean().sqrt().item()


def test_against_the_singular_values():
    net = Net()
    sigma = spectra(net)
    residuals = torch.tensor([rms(values) for values in sigma.values()], dtype=torch.float64)
    values = monitor.measure(net, layers=True)
    assert values["bort/residual_largest"] == pytest.approx(residuals.max().item(), rel=1e-6)
    assert values["bort/residual_median"] == pytest.approx(residuals.median().item(), rel=1e-6)
    assert values["bort/sigma_largest"] == pytest.approx(max(s.max().item() for s in sigma.values()), rel=1e-5)
    assert values["bort/milliseconds"] > 0
    for name, expected in sigma.items():
        assert values[f"bort/{name}/residual"] == pytest.approx(rms(expected), rel=1e-5)
        # Of the large one a Ritz value, which lies inside the range.
        inside = 0.05 if name == "large.weight" else 1e-6
        smallest, largest = values[f"bort/{name}/sigma_smallest"], values[f"bort/{name}/sigma_largest"]
        assert expected.min().item() - 1e-6 <= smallest <= expected.min().item() + inside
        assert expected.max().item() * (1 - inside) <= largest <= expected.max().item() * (1 + 1e-6)
    assert len(values) == 5 + 3 * len(sigma)
    assert all(type(value) is float for value in values.values())


def test_a_model_has_the_numbers_of_the_audit_and_of_its_optimizer():
    net = Net()
    audit = bort.audit(net)
    optimizer = bort.BortA(bort.param_groups(net), lr=1e-3)
    of_model, of_optimizer = monitor.measure(net, layers=True), monitor.measure(optimizer, layers=True)
    del of_model["bort/milliseconds"], of_optimizer["bort/milliseconds"]
    assert of_model == of_optimizer
    assert monitor.measure(bort.param_groups(net), layers=True).keys() > of_model.keys()
    for name, residual in optimizer.residuals().items():
        assert of_model[f"bort/{name}/residual"] == pytest.approx(residual, rel=1e-5)
        assert of_model[f"bort/{name}/residual"] == pytest.approx(audit[name].residual, rel=1e-5)
    assert of_model["bort/sigma_largest"] == pytest.approx(
        max(layer.sigma[1] for layer in audit if layer.name != "head.weight"), rel=1e-5
    )


@pytest.mark.parametrize(
    "settings",
    [{"scale": 2.0}, {"mode": "rows"}, {"mode": "rows", "transposed": True}, {"mode": "rows", "scale": "adaptive"}],
)
def test_the_residual_is_that_of_the_groups_own_target(settings):
    wide, square = nn.Parameter(torch.randn(4, 9)), nn.Parameter(torch.randn(6, 6))
    optimizer = bort.BortS([{"params": [wide], **settings}, {"params": [square]}], lr=0.1)
    values = monitor.measure(optimizer, layers=True)
    assert values["bort/0.0/residual"] == pytest.approx(penalty.residual(wide, **settings).item(), rel=1e-6)
    assert values["bort/1.0/residual"] == pytest.approx(penalty.residual(square).item(), rel=1e-6)
    assert values["bort/0.0/sigma_largest"] == pytest.approx(singular_values(wide).max().item(), rel=1e-6)


def test_the_residual_is_relative_to_the_initial_scale():
    """That of each weight, or of each kernel of a depthwise convolution, at the first step; before it, the one of now."""
    net = nn.Sequential(nn.Conv2d(4, 6, 1), nn.Conv2d(6, 6, 3, groups=6)).double()
    optimizer = bort.BortS(net, lr=0.1, constraint=1.0, scale="initial")

    def squares():
        """σ² of each block, (blocks, σ)."""
        matrices = {"0.weight": net[0].weight.reshape(1, 6, 4), "1.weight": net[1].weight.reshape(6, 1, 9)}
        return {name: torch.linalg.svdvals(w.detach()).square() for name, w in matrices.items()}

    scales = {name: of_blocks.mean(dim=1, keepdim=True) for name, of_blocks in squares().items()}
    for _ in range(3):
        values = monitor.measure(optimizer, layers=True)
        for name, of_blocks in squares().items():
            expected = (of_blocks / scales[name] - 1).square().mean().sqrt().item()
            assert values[f"bort/{name}/residual"] == pytest.approx(expected, rel=1e-6, abs=1e-9)
        net(torch.randn(2, 4, 5, 5).double()).sum().backward()
        optimizer.step()


def test_what_is_on_the_constraint_has_no_residual():
    tall = nn.Parameter(torch.linalg.qr(torch.randn(40, 9, dtype=torch.float64))[0])
    wide = nn.Parameter(torch.linalg.qr(torch.randn(300, 280, dtype=torch.float64))[0].T.contiguous())
    values = monitor.measure(bort.BortS([tall, wide], lr=0.1))
    assert values["bort/residual_largest"] < 1e-12
    assert values["bort/sigma_smallest"] == pytest.approx(1, abs=1e-7)
    assert values["bort/sigma_largest"] == pytest.approx(1, abs=1e-7)


def test_a_model_names_plain_parameters():
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5))
    optimizer = bort.BortS(net.parameters(), lr=0.1)
    assert "bort/0.2/residual" in monitor.measure(optimizer, layers=True)
    values = monitor.measure(optimizer, layers=True, model=torch.compile(net), prefix="constraint")
    assert {"constraint/0.weight/residual", "constraint/1.weight/residual"} < values.keys()


def test_a_parameter_that_is_listed_twice_counts_once():
    weight = nn.Parameter(torch.randn(3, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        optimizer = bort.BortS([weight, weight], lr=0.1)
    assert len(monitor.measure(optimizer, layers=True)) == 5 + 3


def test_diverged_weights_are_nan_and_end_nothing():
    good, bad = nn.Parameter(torch.eye(4)), nn.Parameter(torch.full((4, 4), torch.inf))
    values = monitor.measure(bort.BortS([good, bad], lr=0.1), layers=True)
    assert math.isnan(values["bort/sigma_smallest"])
    assert not math.isfinite(values["bort/residual_largest"])
    assert values["bort/0.0/residual"] == 0.0


def test_weights_are_left_as_they_are():
    net = Net()
    before = [p.detach().clone() for p in net.parameters()]
    optimizer = bort.BortA(bort.param_groups(net), lr=1e-3)
    monitor.measure(optimizer)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert optimizer.state_dict()["state"] == {}


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (torch.optim.SGD([nn.Parameter(torch.eye(3))], lr=0.1), "SGD is not a Bort optimizer"),
        (bort.BortS([nn.Parameter(torch.eye(3))], lr=0.1, constraint=0.0), "no parameter of BortS has a constraint"),
        (nn.LayerNorm(3), "no linear map"),
    ],
)
def test_nothing_to_measure_is_said(source, sentence):
    with pytest.warns(UserWarning, match=sentence):
        assert monitor.measure(source) == {}


@pytest.mark.parametrize("cls", [torch.optim.SGD, bort.BortS])
def test_groups_that_an_optimizer_has_taken(cls):
    """An optimizer takes the names out of ``params``."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    groups = bort.param_groups(net, exclude=())
    before = monitor.measure(groups, layers=True)
    cls(groups, lr=0.1)
    after = monitor.measure(groups, layers=True)
    del before["bort/milliseconds"], after["bort/milliseconds"]
    assert after == before


def test_layers_of_two_models_with_the_same_names():
    first, second = nn.Linear(3, 4), nn.Linear(4, 2)
    groups = [*bort.param_groups(first, exclude=()), *bort.param_groups(second, exclude=())]
    values = monitor.measure(bort.BortS(groups, lr=0.1), layers=True)
    assert values["bort/0.weight/residual"] == pytest.approx(rms(singular_values(first.weight)), rel=1e-5)
    assert values["bort/2.weight/residual"] == pytest.approx(rms(singular_values(second.weight)), rel=1e-5)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_numbers_is_left_out():
    net = nn.Sequential(nn.Linear(0, 4), nn.Linear(4, 4))
    assert list(monitor.measure(net, layers=True)) == list(monitor.measure(bort.BortS(net, lr=0.1), layers=True))
    (decision,) = [d for d in bort.param_groups(net).decisions if d.name == "0.weight"]
    assert (decision.constrained, decision.reason) == (False, "empty")
