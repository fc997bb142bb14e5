"""The kernels on CPU tensors, against the readable mathematics. `test_triton` runs this file in Triton's interpreter."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from bort import penalty
from bort.optim._apply import GroupStep, LentGradients
from bort.optim._device_steps import DeviceSteps
from bort.optim._spec import PenaltySpec
from bort.optim._stability import Stability
from bort.optim.kernels import Kernels, Tuning, _launch
from tests.optim.recording import CpuRecorder, Tape

EACH_ALONE = Tuning(scratch_bytes=1)
IN_SEGMENTS = Tuning(scratch_bytes=1, segment=128, long=300)
LARGE = Tuning(scratch_bytes=1, block_loads=True)
LARGE_IN_SEGMENTS = Tuning(scratch_bytes=1, block_loads=True, segment=128, long=300)
LARGE_WIDE_TILES = Tuning(scratch_bytes=1, block_loads=True, wide_gram_tiles=True)
# Without rounding errors (short=1), as long rows are staged: the products of shorter ones take the interpreter less time.
ONE_SHAPE_TOGETHER = Tuning(block_loads=True, block_batches=128, short=1)
TOGETHER_IN_SEGMENTS = replace(ONE_SHAPE_TOGETHER, segment=128, long=300)
TOGETHER_WIDE_TILES = replace(ONE_SHAPE_TOGETHER, wide_gram_tiles=True)
ODD = [(9, 8), (8, 9), (64, 25), (131, 199), (199, 131), (16, 3, 3, 3)]


def kernels(tuning=None):
    return Kernels(available=lambda device: True, tuning=tuning)


def steps(tuning=None, recorder=None):
    return DeviceSteps(torch.device("cpu"), kernels(tuning), recorder or CpuRecorder(wanted=False))


def gradients(steps, weights, spec, stability, residuals, *, grad_scale=1.0, skip=None):
    """What the weights have as gradients after a step, as the base optimizer gets them. They have their own again then."""
    factor = stability.rate if spec.decoupled else spec.strength * grad_scale * (-1 if spec.maximize else 1)
    lent = LentGradients()
    slots = list(enumerate(weights))
    with torch.no_grad():
        elsewhere = steps.apply(slots, GroupStep(spec, slots, stability, residuals, factor, lent, {}, skip, False))
    assert elsewhere == []
    penalised = [p.grad for p in weights]
    lent.give_back()
    return penalised


def check(
    shapes, *, coupled=False, a=0.01, scale=1.0, size=0.1, dtype=torch.float32, tuning=None, tolerance=1e-3, **settings
):
    """One step of the kernels on weights of these shapes, against the guarded direction in float64. ``scale`` may be one for
    each weight."""
    torch.manual_seed(0)
    weights = [nn.Parameter((torch.randn(*shape) * size).to(dtype)) for shape in shapes]
    for p in weights:
        p.grad = torch.randn_like(p)
    before = [p.detach().double() for p in weights]
    residuals = torch.full((len(weights),), torch.nan)
    own_scales, transposed = isinstance(scale, list), settings.get("transposed", False)
    if own_scales:
        settings |= {"scale": "initial", "scales": torch.tensor(scale)[:, None]}
    spec, stability = PenaltySpec(0.5, **({"scale": scale, "decoupled": not coupled} | settings)), Stability(a)
    with torch.no_grad():
        assert kernels(tuning).divide(list(enumerate(weights)), spec).rest == ()
    penalised = gradients(steps(tuning), weights, spec, stability, residuals)
    results = dict(zip(weights, penalised if coupled else [p.detach() for p in weights], strict=True))
    for slot, (p, w, residual) in enumerate(zip(weights, before, residuals.tolist(), strict=True)):
        x = penalty.matrices(w, transposed=transposed)
        if own_scales:
            e, s = penalty.defect(x / scale[slot] ** 0.5, 1.0, "full"), 1.0
        else:
            s = penalty.target(x, scale)
            e = penalty.defect(x, s, "full")
        factor = stability.damping(e, s)
        move = penalty.restore(penalty.pull(x, e if factor is None else e * factor, "full"), w, transposed=transposed)
        start = p.grad.double() if coupled else w
        expected = start + 0.5 * move if coupled else start - a * move
        error = ((results[p].double() - expected).norm() / (expected - start).norm()).item()
        assert error < tolerance, tuple(w.shape)
        assert residual == pytest.approx(penalty.distance(e).item(), rel=5e-3), tuple(w.shape)


@pytest.mark.parametrize("coupled", [False, True])
def test_many_shapes_in_one_batch(coupled):
    check(ODD, coupled=coupled)


def test_without_rounding_errors():
    check([(127, 40), (9, 1100)], precision="medium")


def test_an_unstable_step_is_shortened():
    check([(140, 130), (12, 40)], size=3.0, a=0.1, tolerance=0.05)  # the two estimates of ‖E‖₂ differ a little


def test_half_precision_and_another_scale():
    check([(40, 30), (30, 40)], dtype=torch.bfloat16, a=1.0, size=0.2, scale=2.0, tolerance=0.05)


@pytest.mark.parametrize("coupled", [False, True])
def test_a_scale_for_each_weight(coupled):
    """Some of them unstable; the scales are found by slot, whatever the order of the tables."""
    check(ODD, coupled=coupled, scale=[0.5, 2.0, 0.01, 30.0, 1.0, 0.2])
    check([(140, 130), (12, 40)], coupled=coupled, size=3.0, a=1.0, scale=[300.0, 2.0], tolerance=0.05)
    check([(140, 1030), (1030, 140)], coupled=coupled, scale=[3.0, 0.2], tuning=LARGE)


@pytest.mark.parametrize("coupled", [False, True])
def test_an_adaptive_scale(coupled):
    """Some steps unstable, by ‖E‖₂ or by s."""
    check(ODD, coupled=coupled, scale="adaptive")
    check([(40, 30), (24, 40)], coupled=coupled, scale="adaptive", transposed=True)
    check([(140, 130), (12, 40)], coupled=coupled, scale="adaptive", size=3.0, a=0.01, tolerance=0.05)
    check([(140, 1030), (1030, 140)], coupled=coupled, scale="adaptive", tuning=LARGE)


def test_an_adaptive_scale_of_a_weight_that_is_zero():
    weights = [nn.Parameter(torch.zeros(16, 24)), nn.Parameter(torch.full((16, 24), 1e-12))]
    before = [p.detach().clone() for p in weights]
    residuals = torch.full((2,), torch.nan)
    for p in weights:
        p.grad = torch.ones_like(p)
    gradients(steps(), weights, PenaltySpec(0.5, scale="adaptive", decoupled=True), Stability(0.1), residuals)
    for p, start in zip(weights, before, strict=True):
        torch.testing.assert_close(p.detach(), start)
    assert residuals.tolist() == pytest.approx([0.0, 0.0], abs=1e-20)


@pytest.mark.parametrize(
    ("shapes", "tuning", "coupled"),
    [
        ([(33, 20), (20, 33), (64, 64)], EACH_ALONE, False),
        ([(30, 500)], IN_SEGMENTS, False),
        ([(30, 1400), (1400, 30), (140, 1100), (1100, 140)], LARGE_IN_SEGMENTS, False),
        ([(30, 1400), (1100, 300), (300, 1100)], LARGE, True),
        ([(300, 1100)], LARGE, False),
        ([(300, 1100), (1100, 300), (130, 1030)], LARGE_WIDE_TILES, False),
    ],
    ids=["each alone", "segments", "large, segments", "large, coupled", "large", "large, wide tiles"],
)
def test_large_weights(shapes, tuning, coupled):
    check(shapes, tuning=tuning, coupled=coupled)


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize(
    "tuning",
    [ONE_SHAPE_TOGETHER, TOGETHER_IN_SEGMENTS, TOGETHER_WIDE_TILES],
    ids=["together", "segments", "wide tiles"],
)
def test_weights_of_one_shape_together(tuning, coupled):
    """Beside others that are alone of their shape, or too small."""
    shapes = [(140, 400), (16, 40), (400, 300), (140, 400), (400, 300), (16, 40), (150, 330)]
    check(shapes, tuning=tuning, coupled=coupled, tolerance=3e-3)


def test_of_weights_of_one_shape_each_has_its_scale_and_its_guard():
    shapes = [(140, 330)] * 3
    check(shapes, scale=[0.5, 2.0, 30.0], tuning=ONE_SHAPE_TOGETHER, tolerance=3e-3)
    # The two estimates of ‖E‖₂ differ a little.
    check(shapes, size=3.0, a=1.0, scale=[300.0, 2.0, 9000.0], tuning=ONE_SHAPE_TOGETHER, tolerance=0.1)


def test_a_scaled_gradient():
    p = nn.Parameter(torch.randn(16, 24) / 8)
    p.grad = torch.zeros_like(p)
    scale = torch.tensor(8.0)
    spec = PenaltySpec(1.0, maximize=True)
    (grad,) = gradients(steps(), [p], spec, Stability(0.1), torch.empty(1), grad_scale=scale)
    torch.testing.assert_close(grad, -8 * penalty.gradient(p.detach()), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
@pytest.mark.parametrize(("shape", "tuning"), [((16, 24), None), ((24, 16), None), ((130, 1030), LARGE)])
def test_a_skipped_step_computes_nothing(shape, tuning, kind):
    """Weights and residuals stay, and a coupled step has its gradients, although the weights are nan."""
    p = nn.Parameter(torch.full(shape, torch.nan))
    p.grad = torch.randn(shape)
    residuals, skip = torch.tensor([0.25]), torch.ones((), dtype=kind)
    for decoupled in (True, False):
        spec, stability = PenaltySpec(1.0, decoupled=decoupled), Stability(torch.tensor(0.1))
        (grad,) = gradients(steps(tuning), [p], spec, stability, residuals, skip=skip)
        assert p.isnan().all()
        assert torch.equal(grad, p.grad)
        assert residuals.item() == 0.25


def test_directions_of_whole_matrices():
    """By the kernels where they apply (not: three rows, half precision), the second time from the same tables."""
    torch.manual_seed(0)
    matrices = [torch.randn(30, 140) * 0.1, torch.randn(140, 30) * 0.1, torch.randn(3, 9), torch.randn(9, 12).half()]
    slots = [0, 1, 2, 4]
    ours = kernels()
    scales = torch.tensor([[0.7], [1.5], [2.0], [1.0], [4.0]])
    for spec in (
        PenaltySpec(0.1),
        PenaltySpec(0.1, scale="initial", scales=scales),
        PenaltySpec(0.1, scale="adaptive"),
    ):
        with torch.no_grad():
            first, second = (
                ours.directions(list(zip(slots, matrices, strict=True)), spec, Stability(0.01)) for _ in range(2)
            )
        for slot, matrix in zip(slots, matrices, strict=True):
            direction, residual = first[slot]
            root = 1.0 if spec.scales is None else scales[slot].sqrt().double()
            scale = "adaptive" if spec.scale == "adaptive" else 1.0
            exact = root * penalty.gradient(matrix.double() / root, scale=scale)
            assert (direction.double() - exact).norm() < 1e-2 * exact.norm(), slot
            expected = penalty.residual(matrix.double() / root, scale=scale).item()
            assert residual.item() == pytest.approx(expected, rel=5e-3)
            assert torch.equal(direction, second[slot][0])


@pytest.fixture
def _recordable(monkeypatch):
    """Launches of kernels go onto the tape, as torch's operations do."""
    start = _launch._start

    def record(batch, kernel, programs, arguments, *others):
        if Tape.current is None:
            start(batch, kernel, programs, arguments, *others)
        else:
            Tape.current.add(lambda *arguments: start(batch, kernel, programs, arguments, *others), *arguments)

    monkeypatch.setattr(_launch, "_start", record)


@pytest.mark.usefixtures("_recordable")
@pytest.mark.parametrize("tuning", [None, EACH_ALONE], ids=["together", "each alone"])
@pytest.mark.parametrize(("decoupled", "scale"), [(False, 1.0), (True, 1.0), (True, "adaptive")])
def test_recorded_launches_are_those_one_by_one(decoupled, scale, tuning):
    """Weights for the kernels and for plain torch, of two dtypes; numbers that change; gradients that move, one of them to be
    laid out in memory otherwise than its weight."""
    shapes = [(16, 24), (24, 16), (3, 9), (20, 12, 1, 1), (9, 30)]
    results = []
    for wanted in (True, False):
        torch.manual_seed(0)
        weights = [nn.Parameter(torch.randn(shape) / 4) for shape in shapes]
        weights[4].data = weights[4].data.half()
        recorder, residuals = CpuRecorder(wanted), torch.zeros(len(shapes))
        ours, history = steps(tuning, recorder), []
        for step in range(6):
            if step == 5:
                for p in weights:
                    p.grad.copy_(torch.randn_like(p))  # other numbers at the same addresses
            else:
                for p in weights:
                    p.grad = torch.randn_like(p)
                weights[3].grad = torch.randn(20, 12, 1, 1).to(memory_format=torch.channels_last)
            if step == 4:
                weights[0].grad = torch.randn(24, 16).T
            stability = Stability(0.02 * (1 + step))
            spec = PenaltySpec(0.1 + step, decoupled=decoupled, scale=scale)
            history.append(
                gradients(ours, weights, spec, stability, residuals, skip=torch.tensor(step == 3), grad_scale=step)
            )
            history[-1] = [grad.clone() for grad in history[-1]]
            history.append([residuals.clone(), *(p.detach().clone() for p in weights)])
        assert (recorder.recorded, recorder.replayed) == ((1, 5) if wanted else (0, 0))
        results.append(history)
    for recorded, one_by_one in zip(*results, strict=True):
        for a, b in zip(recorded, one_by_one, strict=True):
            assert torch.equal(a, b)
