"""The penalty of whole weights on a GPU: one launch a step, of a CUDA graph that belongs to the param group.

As long as the same weights are due, a step launches the same as the last one: the kernels, and plain torch for the weights
that these do not take. So the launches are recorded when a list of weights comes for the second time, and then replayed.

The graph holds addresses. It is replayed only if each weight is where it was, with the same shape, strides and dtype: then
what it holds is true, however the weight came to be there. All other memory that it uses is kept here. What changes from step
to step is in device memory: the numbers (`_numbers`), and where the gradients are (`kernels.PenalisedGradients`).

Steps that somebody else captures, and those that are not recorded, make the same launches one by one, with the same bits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bort._precision import own_precision
from bort.optim import _plain_torch
from bort.optim._apply import GroupStep
from bort.optim._kept_memory import KeptMemory
from bort.optim._numbers import StepNumbers, fresh_number
from bort.optim._places import Place, are_at, places
from bort.optim._recorder import SWITCH, Recorder
from bort.optim._spec import Weight
from bort.optim._stability import Stability
from bort.optim.kernels import Division, Kernels, PenalisedGradients, launch, scalars_of, scratch_size

# Lists of weights that are remembered, recorded or not: which weights are due may alternate. Where there are more, as in a
# mixture of experts, a list is forgotten before it comes again, and nothing is recorded.
_MOST_LISTS = 4

Coupled: TypeAlias = list[tuple[Sequence[int], PenalisedGradients]]
"""Positions of the weights that a tiling of the kernels is for, and their gradients."""


@dataclass(slots=True)
class _Recording:
    """The launches for a list of weights, which are named by their positions in it: nothing here keeps a weight alive."""

    replay: Callable[[], None]
    division: Division
    """Its tables and compiled kernels are in use."""
    coupled: Coupled
    copies: list[tuple[int, Tensor]]
    """Coupled: of each weight left to plain torch, the copy of its gradient that the penalty is added to."""
    memory: list[Tensor]
    """All that the graph uses, apart from the weights."""
    streams: set[object] = field(default_factory=set)
    """Where it has been replayed."""
    reads: tuple[Place, ...] = ()
    """The places of the gradients that are in the address tables."""


@dataclass(slots=True)
class _List:
    """What is known of a list of weights."""

    settings: tuple[Any, ...]
    places: tuple[Place, ...]
    named: tuple[Tensor | None, ...]
    """Tensors that are in the settings by their ids, so that no others can get these."""
    may_be_recorded: bool
    gradients: tuple[Place, ...] = ()
    """Coupled: where the gradients were in the last step."""
    is_known: bool = False
    """Whether it has been launched: its kernels are compiled then."""
    recording: _Recording | None = None


class DeviceSteps:
    """The steps of one param group on one device."""

    def __init__(self, device: torch.device, kernels: Kernels, recorder: Recorder) -> None:
        self.device, self._kernels, self._recorder = device, kernels, recorder
        self._lists: dict[tuple[Any, ...], _List] = {}
        """By all that their launches depend on, the last one used at the end."""
        self._last: _List | None = None
        self._retired: list[Callable[[], None]] = []
        """Graphs that are still to be destroyed."""
        self._memory = KeptMemory(device)
        self._numbers: StepNumbers | None = None
        self._records = recorder.is_wanted()

    def apply(self, weights: list[Weight], step: GroupStep) -> list[Weight]:
        """Move the weights, or lend them gradients. Returns those that are on other devices."""
        if self._recorder.is_capturing():
            # Whoever captures the step has the launches in a graph of his own. Ours are destroyed later: not every version of
            # CUDA and torch allows it during a capture.
            self._retired += [known.recording.replay for known in self._lists.values() if known.recording is not None]
            self._forget()
            here, elsewhere = self._by_device(weights)
            self._launch_once(here, self._with_new_numbers(step))
            return elsewhere
        self._retired.clear()
        known = self._known(weights, step)
        if known is None:
            here, elsewhere = self._by_device(weights)
            self.apply(here, step)
            return elsewhere
        numbers = self._write_numbers(step)
        if known.recording is None and known.is_known and known.may_be_recorded and self._records:
            known.recording = self._record(weights, _with_numbers(step, numbers), numbers)
        if known.recording is None:
            self._launch_once(weights, _with_numbers(step, numbers))
        else:
            self._replay(known, known.recording, weights, step)
        known.is_known = True
        return []

    def _known(self, weights: list[Weight], step: GroupStep) -> _List | None:
        """None: they are not all on this device."""
        last, settings, coupled = self._last, _settings(step), not step.spec.decoupled
        gradients = [(slot, p.grad) for slot, p in weights] if coupled else []
        if (
            last is not None
            and last.settings == settings
            and are_at(weights, last.places)
            and are_at(gradients, last.gradients)  # type: ignore[arg-type]
        ):
            return last
        at, gradients_at = places(weights), places(gradients)  # type: ignore[arg-type]
        key = (settings, at, *[dtype for *_, dtype in gradients_at])
        if key not in self._lists:
            if any(p.device != self.device for _, p in weights):
                return None
            # Tensors that wrap others have no address of their own, and these may change theirs unseen.
            have_addresses = all(address for _, address, *_ in (*at, *gradients_at))
            self._lists[key] = _List(settings, at, (step.residuals, step.spec.scales), have_addresses)
            if len(self._lists) > _MOST_LISTS:
                del self._lists[next(iter(self._lists))]
        last = self._last = self._lists[key] = self._lists.pop(key)
        last.gradients = gradients_at
        return last

    def _forget(self) -> None:
        self._lists.clear()
        self._memory.clear()
        self._last = None

    def _by_device(self, weights: list[Weight]) -> tuple[list[Weight], list[Weight]]:
        here = [weight for weight in weights if weight[1].device == self.device]
        return here, [weight for weight in weights if weight[1].device != self.device]

    def _write_numbers(self, step: GroupStep) -> StepNumbers:
        numbers = self._numbers = self._numbers or StepNumbers(self.device)
        numbers.rate.write(step.stability.rate)
        if not step.spec.decoupled:  # the same number otherwise
            numbers.factor.write(step.factor)
        if step.skip is not None:
            numbers.skip.write(step.skip)
        return numbers

    def _with_new_numbers(self, step: GroupStep) -> GroupStep:
        """In new memory: it belongs to the graph that is being captured, as do the launches that write them."""
        rate = fresh_number(step.stability.rate, self.device)
        factor = rate if step.spec.decoupled else fresh_number(step.factor, self.device)
        return _on_device(step, rate, factor, None if step.skip is None else step.skip.to(self.device))

    def _launch_once(self, weights: list[Weight], step: GroupStep) -> None:
        division = self._kernels.divide(weights, step.spec)
        coupled: Coupled = []
        if not step.spec.decoupled:
            coupled = [(positions, PenalisedGradients(tiling)) for positions, tiling in division.parts]
            _read(coupled, weights)
        self._launch(weights, step, division, coupled)
        _lend(coupled, weights, step)

    def _launch(
        self,
        weights: list[Weight],
        step: GroupStep,
        division: Division,
        coupled: Coupled,
        into: Mapping[int, Tensor] | None = None,
        scratch: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """All launches of a step. ``into`` and ``scratch`` are memory that stays, for launches that are recorded."""
        spec, stability = step.spec, step.stability
        for part, (positions, tiling) in enumerate(division.parts):
            assert isinstance(stability.rate, Tensor)
            assert isinstance(step.factor, Tensor)
            members = [weights[position] for position in positions]
            scalars = scalars_of(spec, members, stability.rate, step.factor, stability.limits, step.skip)
            launch(tiling, scalars, step.residuals, coupled[part][1] if coupled else None, scratch)
        if division.rest:
            rest = [weights[position] for position in division.rest]
            with own_precision(spec.precision, self.device):
                for moves in _plain_torch.directions(rest, spec, stability):
                    step.apply_all(*moves, into)

    def _record(self, weights: list[Weight], step: GroupStep, numbers: StepNumbers) -> _Recording | None:
        """None: it cannot be recorded, and nothing else will be."""
        try:
            return self._recorded(weights, step, numbers)
        except RuntimeError as error:
            self._records = False
            self._forget()
            warnings.warn(
                "The penalty cannot be recorded in a CUDA graph, so it is launched kernel by kernel, which takes the host "
                f"longer ({str(error).splitlines()[0]}). {SWITCH}=0 in the environment does without a graph in any case.",
                stacklevel=2,
            )
            return None

    def _recorded(self, weights: list[Weight], step: GroupStep, numbers: StepNumbers) -> _Recording:
        spec, division, grown = step.spec, self._kernels.divide(weights, step.spec), self._memory.grown
        coupled: Coupled = []
        copies: list[tuple[int, Tensor]] = []
        scratch = None
        if not spec.decoupled:
            for positions, tiling in division.parts:
                results = self._memory.block("results", tiling.dtype, tiling.result_size)
                coupled.append((positions, PenalisedGradients(tiling, results)))
            models = [(weights[i][1], weights[i][1].grad.dtype) for i in division.rest]  # type: ignore[union-attr]
            copies = list(zip(division.rest, self._memory.like("copies", models), strict=True))
        if division.parts:
            halves, singles = scratch_size(division)
            scratch = (
                self._memory.block("scratch", torch.float16, halves),
                self._memory.block("scratch", torch.float32, singles),
            )
        if self._memory.grown > grown:  # the others have addresses of smaller blocks, which are to be freed
            for known in self._lists.values():
                known.recording = None
        into = {weights[position][0]: copy for position, copy in copies}
        replay = self._recorder.record(
            lambda: self._launch(weights, step, division, coupled, into or None, scratch),
            self.device,
            with_products=bool(division.rest),
        )
        tensors = [*numbers.tensors(), step.residuals]
        tensors += [*division.tables(), *self._memory.blocks(), *(gradients.table for _, gradients in coupled)]
        tensors += [] if spec.scales is None else [spec.scales]
        return _Recording(replay, division, coupled, copies, tensors)

    def _replay(self, known: _List, recording: _Recording, weights: list[Weight], step: GroupStep) -> None:
        copies, have_moved = recording.copies, recording.reads is not known.gradients
        _read([pair for pair in recording.coupled if have_moved or pair[1].copies], weights)
        recording.reads = known.gradients
        if copies:
            own = [weights[position][1].grad for position, _ in copies]
            torch._foreach_copy_([copy for _, copy in copies], own)  # type: ignore[arg-type]
        self._recorder.use(recording.memory, recording.streams)
        recording.replay()
        _lend(recording.coupled, weights, step)
        step.lent.lend_all([weights[position][1] for position, _ in copies], [copy for _, copy in copies])


def _settings(step: GroupStep) -> tuple[Any, ...]:
    """What the launches depend on beside the weights, apart from numbers that are in device memory."""
    spec = step.spec
    return (
        *(spec.decoupled, spec.scale, spec.mode, spec.precision, spec.blocks, spec.transposed, step.stability.limits),
        *(step.skip is None, id(step.residuals), id(spec.scales)),
    )


def _with_numbers(step: GroupStep, numbers: StepNumbers) -> GroupStep:
    """The step with its numbers where recordings read them."""
    rate = numbers.rate.tensor
    factor = rate if step.spec.decoupled else numbers.factor.tensor
    return _on_device(step, rate, factor, None if step.skip is None else numbers.skip.tensor)


def _on_device(step: GroupStep, rate: Tensor, factor: Tensor, skip: Tensor | None) -> GroupStep:
    return replace(step, stability=Stability(rate, step.stability.limits, on_device=True), factor=factor, skip=skip)


def _read(coupled: Coupled, weights: list[Weight]) -> None:
    for positions, gradients in coupled:
        gradients.read_from([weights[position][1].grad for position in positions])  # type: ignore[misc]


def _lend(coupled: Coupled, weights: list[Weight], step: GroupStep) -> None:
    for positions, gradients in coupled:
        step.lent.lend_all([weights[position][1] for position in positions], gradients.results)
