"""Which weights the kernels take, and when their tables are made anew: no GPU needed for that."""

import pytest
import torch
from torch import nn

from bort.optim._spec import PenaltySpec
from bort.optim.kernels import Tuning
from bort.optim.kernels._division import Divisions, available

pytest.importorskip("triton")

SPEC = PenaltySpec(0.1)


@pytest.fixture
def divisions():
    """As if the kernels ran on any device."""
    return Divisions(lambda device: True, Tuning())


@torch.no_grad()
def taken(divisions, weights, spec=SPEC):
    """Positions of the weights that the kernels take."""
    division = divisions.of(list(enumerate(weights)), spec)
    positions = [position for positions, _ in division.parts for position in positions]
    assert sorted([*positions, *division.rest]) == list(range(len(weights)))
    return positions


WEIGHT = torch.randn(16, 32)


@pytest.mark.parametrize(
    ("weight", "settings", "expected"),
    [
        pytest.param(WEIGHT, {}, True, id="plain"),
        pytest.param(torch.randn(16, 4, 3, 3).to(memory_format=torch.channels_last), {}, True, id="channels_last"),
        pytest.param(WEIGHT.bfloat16(), {}, True, id="bf16"),
        pytest.param(WEIGHT.double(), {}, False, id="fp64"),
        pytest.param(torch.randn(7, 32), {}, False, id="few rows"),
        pytest.param(torch.randn(16, 64)[:, ::2], {}, False, id="strided"),
        pytest.param(torch.randn(32, 16).T, {}, False, id="transposed in memory"),
        pytest.param(WEIGHT, {"mode": "rows"}, False, id="rows"),
        pytest.param(WEIGHT, {"scale": "adaptive"}, True, id="adaptive"),
        pytest.param(WEIGHT, {"precision": "highest"}, False, id="highest"),
        pytest.param(WEIGHT, {"precision": "medium"}, True, id="medium"),
        pytest.param(WEIGHT, {"blocks": 2}, False, id="blocks"),
        pytest.param(WEIGHT, {"transposed": True}, True, id="transposed"),
        pytest.param(WEIGHT, {"schedule_free": True}, False, id="schedule-free"),
    ],
)
def test_what_the_kernels_take(divisions, weight, settings, expected):
    assert taken(divisions, [weight], PenaltySpec(0.1, **settings)) == ([0] if expected else [])


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="gradients have the dtype of their weights here")
@pytest.mark.parametrize("decoupled", [False, True])
def test_a_gradient_of_another_dtype_is_left_to_torch_if_it_is_read(divisions, decoupled):
    weight = nn.Parameter(torch.randn(16, 32).bfloat16())
    weight.grad_dtype = torch.float32
    spec = PenaltySpec(0.1, decoupled=decoupled)
    assert taken(divisions, [weight], spec) == [0]
    weight.grad = torch.zeros(16, 32)
    assert taken(divisions, [weight], spec) == ([0] if decoupled else [])


def test_some_of_a_list(divisions):
    weights = [torch.randn(16, 32), torch.randn(3, 3), torch.randn(16, 32).half(), torch.randn(40, 9)]
    assert taken(divisions, weights) == [0, 3, 2], "by dtype"


def test_a_step_through_autograd_is_left_to_torch(divisions):
    with torch.enable_grad():
        assert divisions.of([(0, WEIGHT)], SPEC).parts == ()


def test_a_cpu_has_no_kernels():
    assert not available(torch.device("cpu"))
    assert taken(Divisions(available, Tuning()), [WEIGHT]) == []


@torch.no_grad()
def test_tables_are_kept_until_a_weight_changes_place_or_shape(divisions):
    weights = [(0, torch.randn(16, 32)), (1, torch.randn(40, 9))]
    first = divisions.of(weights, SPEC)
    assert divisions.of(weights, SPEC) is first
    assert divisions.of(weights[1:], SPEC) is not first, "the first one has no gradient this time"
    assert divisions.of(weights, SPEC) is first
    assert divisions.of([(0, weights[0][1][:8]), weights[1]], SPEC) is not first, "another shape at the same address"
    assert divisions.of([(0, weights[0][1].clone()), weights[1]], SPEC) is not first, "another address"
    assert divisions.of([(2, weights[0][1]), weights[1]], SPEC) is not first, "its residual goes elsewhere"
    assert divisions.of(weights, PenaltySpec(0.1, precision="medium")) is not first
    assert divisions.of(weights, PenaltySpec(0.7, scale=2.0, every=3)) is first, "λ and s are not in the tables"


@torch.no_grad()
def test_tables_of_many_lists_are_not_kept_for_ever(divisions):
    weights = [(0, torch.randn(16, 32))]
    first = divisions.of(weights, SPEC)
    for rows in range(8, 108):
        divisions.of([(0, torch.randn(rows, 16))], SPEC)
    assert divisions.of(weights, SPEC) is not first
