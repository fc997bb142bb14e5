"""Steps that are recorded and replayed are those launched one by one, to the bit, whatever happens between them.

Here on CPU tensors, with a recorder that is as blind as a CUDA graph (`recording`). On a GPU: test_graphs_cuda.
"""

import gc
import weakref

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from bort import BortA, BortS, bortify
from bort.optim._recorder import CudaRecorder

from .cases import assert_same
from .events import EVENTS, Coupled, Training, random
from .recording import CpuRecorder, through


def numbers(training):
    return [*(p.detach() for p in training.weights), torch.tensor(list(training.optimizer.residuals().values()))]


@given(
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 5)), max_size=10),
)
@example(True, [("narrow", 0), ("train", 0), ("transpose", 1), ("train", 0), ("convert", 2), ("train", 0)])
@example(False, [("swap", 0), ("train", 0), ("swap", 0), ("train", 0), ("move", 3), ("train", 0), ("drop", 0)])
@settings(max_examples=60)
def test_any_sequence_of_events(decoupled, events):
    recorded, one_by_one = (Training(CpuRecorder(wanted), decoupled=decoupled) for wanted in (True, False))
    for event, number in [("train", 0), *events, ("train", 0)]:
        for training in (recorded, one_by_one):
            getattr(training, event)(number)
        assert_same(
            [p.detach().nan_to_num(7.0) for p in recorded.weights],
            [p.detach().nan_to_num(7.0) for p in one_by_one.weights],
        )
    assert recorded.optimizer.residuals() == pytest.approx(one_by_one.optimizer.residuals(), rel=0, abs=0, nan_ok=True)
    assert recorded.recorder.replayed >= 2
    assert one_by_one.recorder.recorded == 0


OPTIMIZERS = {
    "S": (BortS, {"momentum": 0.9}),
    "S decoupled": (BortS, {"decoupled": True}),
    "A": (BortA, {"lr": 0.01, "decoupled": True}),
    "Adam coupled": (bortify(torch.optim.Adam), {"lr": 0.01}),
    "maximize": (BortS, {"maximize": True}),
    "every": (BortS, {"every": 2}),
    "warm-up": (BortS, {"warmup": 4}),
    "rows": (BortS, {"mode": "rows", "decoupled": True}),
    "l1-columns": (BortS, {"mode": "l1-columns"}),
    "initial": (BortS, {"scale": "initial"}),
    "a rate in memory": (BortS, {"lr": torch.tensor(0.1)}),
}


@pytest.mark.parametrize(("cls", "options"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_recorded_steps_are_those_of_plain_torch(cls, options):
    """Which has its numbers on the host."""
    recorded, plain = (Training(recorder, cls, fused=True, **options) for recorder in (CpuRecorder(), None))
    for event in ("train", "step_with_inf", "train", "scaled_step", "train"):
        for training in (recorded, plain):
            getattr(training, event)(3)
    for ours, theirs in zip(numbers(recorded), numbers(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert recorded.recorder.replayed >= 3


def counts(training):
    return training.recorder.recorded, training.recorder.replayed


def test_a_second_step_is_recorded_and_the_others_are_replayed():
    training = Training(CpuRecorder())
    training.step()
    assert counts(training) == (0, 0)
    training.step()
    assert counts(training) == (1, 1)
    training.train()
    assert counts(training) == (1, 4)


@pytest.mark.parametrize("event", ["change_rate", "change_rate_to_a_tensor", "change_strength", "reload"])
def test_numbers_do_not_need_another_recording(event):
    training = Training(CpuRecorder())
    training.train()
    getattr(training, event)(2)
    training.train()
    assert counts(training) == (1, 5)


@pytest.mark.parametrize(
    "event",
    [
        *("move", "narrow", "transpose", "convert", "freeze", "drop"),
        *("change_scale", "change_mode", "change_coupling", "captured_step"),
    ],
)
def test_what_changes_the_launches_is_launched_once_and_then_recorded_anew(event):
    training = Training(CpuRecorder())
    training.train()
    getattr(training, event)(1)
    training.train()
    assert counts(training) == (2, 4)


def test_moved_gradients_are_found_without_another_recording():
    training = Training(CpuRecorder())
    for _ in range(4):
        for p in training.weights:
            p.grad = None
        training.step()
    assert counts(training) == (1, 3)


@pytest.mark.parametrize("decoupled", [False, True])
def test_residuals_are_those_of_the_last_step_also_after_a_weight_has_come_without_a_gradient(decoupled):
    """The residuals of the group are in other memory then."""
    recorded, one_by_one = (Training(CpuRecorder(wanted), decoupled=decoupled) for wanted in (True, False))
    for training in (recorded, one_by_one):
        training.train()
        training.groups[0]["params"].append(nn.Parameter(random((5, 3), 77)))
        training.train()
    assert recorded.optimizer.residuals() == one_by_one.optimizer.residuals()


def test_scales_of_a_checkpoint_are_used():
    recorded, one_by_one = (
        Training(CpuRecorder(wanted), BortS, scale="initial", momentum=0.9) for wanted in (True, False)
    )
    for training in (recorded, one_by_one):
        training.train()
        saved = training.optimizer.state_dict()
        for state in saved["state"].values():
            state["initial_scale"] = 3 * state["initial_scale"]
        training.optimizer.load_state_dict(saved)
        training.train()
    assert_same(numbers(recorded), numbers(one_by_one))


def test_lists_that_alternate_are_kept():
    training = Training(CpuRecorder())
    for _ in range(4):
        training.swap(0)
        training.step()
    assert counts(training) == (2, 2), "each address had its first step, then a recorded one"


def test_more_lists_than_are_kept_are_never_recorded():
    training = Training(CpuRecorder())
    for step in range(15):
        training.frozen = {step % 5}
        training.step()
    assert counts(training) == (0, 0)


def test_a_larger_list_makes_the_smaller_one_use_its_memory():
    """Recordings share their memory; one that has addresses of the smaller block is made anew."""
    recorded, one_by_one = Training(CpuRecorder()), Training(CpuRecorder(wanted=False))
    for frozen in ({3}, set(), {3}):
        for training in (recorded, one_by_one):
            training.frozen = frozen
            training.train()
    assert_same(numbers(recorded), numbers(one_by_one))
    assert counts(recorded)[0] == 3


class Failing(CpuRecorder):
    def record(self, *arguments, **settings):
        raise RuntimeError("operation not permitted when stream is capturing\nand a trace")


@pytest.mark.parametrize("decoupled", [False, True])
def test_where_nothing_can_be_recorded_there_is_one_warning_and_the_same_steps(decoupled):
    failing, one_by_one = Training(Failing(), decoupled=decoupled), Training(CpuRecorder(False), decoupled=decoupled)
    failing.step()
    with pytest.warns(UserWarning, match=r"kernel by kernel.*\(operation not permitted.*capturing\)\. BORT_GRAPHS=0"):
        failing.step()
    failing.train()
    for _ in range(5):
        one_by_one.step()
    assert_same(numbers(failing), numbers(one_by_one))


def test_a_variable_of_the_environment_turns_recording_off(monkeypatch):
    assert CudaRecorder().is_wanted()
    monkeypatch.setenv("BORT_GRAPHS", "0")
    assert not CudaRecorder().is_wanted()


@pytest.mark.parametrize("decoupled", [False, True])
def test_no_weight_is_kept_alive(decoupled):
    training = Training(CpuRecorder(), decoupled=decoupled)
    training.train()
    gone = weakref.ref(training.weights[-1])
    training.drop()
    training.train()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("decoupled", [False, True])
def test_tensors_that_wrap_others_are_not_recorded(decoupled):
    """They have no address, and what they wrap may be replaced unseen."""

    def wrapped(seed):
        return TwoTensor(random((4, 6), seed), random((4, 6), seed + 1))

    results = []
    for recorder in (CpuRecorder(), None):
        p = nn.Parameter(wrapped(0))
        optimizer = Coupled([p], lr=0.1, constraint=0.2, decoupled=decoupled)
        if recorder is not None:
            through(recorder, optimizer)
        for step in range(4):
            p.grad = wrapped(10 * step)
            optimizer.step()
        assert recorder is None or recorder.recorded == 0
        results.append((p.detach().a, p.detach().b))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("decoupled", [False, True])
def test_other_dtypes(dtype, decoupled):
    recorded, one_by_one = (Training(CpuRecorder(wanted), decoupled=decoupled) for wanted in (True, False))
    for training in (recorded, one_by_one):
        for p in training.weights[::2]:
            p.data = p.data.to(dtype)
        training.train()
    assert_same(numbers(recorded), numbers(one_by_one))


def test_a_float64_weight_has_its_rate_in_float64():
    recorded, plain = Training(CpuRecorder(), decoupled=True), Training(None, decoupled=True)
    for training in (recorded, plain):
        for p in training.weights:
            p.data = p.data.double()
        training.train()
    for ours, theirs in zip(recorded.weights, plain.weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=1e-14)
