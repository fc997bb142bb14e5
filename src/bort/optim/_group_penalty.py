"""The penalty of one param group: which weights are due in a step, and by which of four routes they are computed.

=========================  ============================================================================================
whole weights              on a GPU by `_device_steps`, with :mod:`bort.optim.kernels` and one launch for all; elsewhere by
                           `_plain_torch`
DTensors (FSDP2, TP)       by :mod:`bort.optim.sharded`, which gives each rank the direction of its own piece
whole weights, under DDP   with ``shard=True`` also by :mod:`bort.optim.sharded`: each rank computes some of the weights
                           and gets the others' directions
=========================  ============================================================================================

All but the kernels compute directions and residuals, which `GroupStep` takes from there.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from bort._precision import own_precision
from bort.optim import _plain_torch
from bort.optim._apply import GroupStep, LentGradients
from bort.optim._device_steps import DeviceSteps
from bort.optim._initial_scales import InitialScales
from bort.optim._recorder import CudaRecorder, Recorder
from bort.optim._schedule import next_turn
from bort.optim._settings import refuse_gradient
from bort.optim._spec import Moves, PenaltySpec, Weight, constrained, is_fake, is_matrix, named
from bort.optim._stability import Stability
from bort.optim.kernels import Kernels, is_capturing
from bort.optim.sharded import DdpSharing, Overlap, ShardedRounds, directions, is_dtensor, local, local_gradient, whole

# A residual from which on a weight counts as far: σ² is further from s than any usual initialisation puts it.
_FAR = 10.0


class GroupPenalty:
    """What is kept of one param group from step to step: its residuals, and what each route has prepared for it.

    The group itself is passed in at every call: load_state_dict replaces the dict.
    """

    def __init__(self, recorder: Recorder | None = None) -> None:
        self._params: list[Tensor] = []
        self._matrices: list[Tensor] = []
        """Of ``_params``, the group's parameters when it was last looked at: those that have a matrix."""
        self._repeated: frozenset[int] = frozenset()
        """Slots of weights that are listed a second time."""
        self._residuals: Tensor | None = None
        self._recorder = recorder or CudaRecorder()
        self._device_steps: DeviceSteps | None = None
        self._sharded = ShardedRounds()
        self._overlap = Overlap()
        self._ddp = DdpSharing()
        self._has_looked = False
        self._initial_scales = InitialScales()

    def active_weights(self, group: dict[str, Any]) -> list[Weight]:
        """The weights that a penalty is computed for: those that have a gradient, and those that all ranks compute together,
        with or without a gradient here, since the others would wait for a rank that left one out."""
        params = group["params"]
        if len(params) != len(self._params) or not all(map(operator.is_, params, self._params)):
            self._params = list(params)
            self._matrices = [p for name, p in named(group) if is_matrix(group, name, p)]
            self._repeated = _repetitions(self._matrices)
            self.forget_scales()
        distributed, shard = dist.is_available() and dist.is_initialized(), group["shard"]
        return [
            (slot, p)
            for slot, p in enumerate(self._matrices)
            if (
                (distributed and (shard or is_dtensor(p)) and p.requires_grad)
                if (grad := p.grad) is None
                else (grad.layout is torch.strided or refuse_gradient(group, p))
            )
        ]

    def begin(
        self,
        optimizer: Optimizer,
        group: dict[str, Any],
        weights: list[Weight],
        lent: LentGradients,
        first_lr: float | Tensor | None,
    ) -> list[GroupStep]:
        """The steps that ``apply`` is to make: none if no penalty is due, one as a rule. Counts the steps of the group, whose
        learning rate was ``first_lr`` at first."""
        scales = None
        if weights and group["scale"] == "initial":
            scales = self._initial_scales.of(group, weights, len(self._matrices), optimizer.state)
        turn = next_turn(group, getattr(optimizer, "found_inf", None))
        if turn is None or not weights:
            return []
        spec = PenaltySpec.of(group, turn.warm, scales)

        stability = Stability.of(spec, group, first_lr)
        factor = stability.rate if spec.decoupled else _coupled_factor(spec, getattr(optimizer, "grad_scale", None))

        def step_of(weights: list[Weight]) -> GroupStep:
            return GroupStep(
                spec,
                weights,
                stability,
                self._residuals_for(len(self._matrices), weights[0][1].device),
                factor,
                lent,
                optimizer.state,
                turn.skip,
                dist.is_available() and dist.is_initialized(),
            )

        if not self._repeated:
            return [step_of(weights)]
        # A parameter that is listed twice (torch warns of it) has two steps of the base optimizer, and so two penalties:
        # coupled, the same penalised gradient counts in both; decoupled, the weight moves a second time.
        repeated = [weight for weight in weights if weight[0] in self._repeated]
        first = [weight for weight in weights if weight[0] not in self._repeated]
        return [step_of(first), *(step_of([weight]) for weight in repeated if spec.decoupled)]

    def apply(self, step: GroupStep) -> None:
        if not step.distributed:
            self._apply_whole(step.weights, step)
            return
        dtensors = [weight for weight in step.weights if is_dtensor(weight[1])]
        if dtensors:
            self._apply_dtensors(dtensors, step)
        replicas = [weight for weight in step.weights if not is_dtensor(weight[1])]
        if replicas and step.spec.shard and dist.get_world_size() > 1:
            self._apply_shared(replicas, step)
        elif replicas:
            self._apply_whole(_with_gradient(replicas), step)

    def _apply_whole(self, weights: list[Weight], step: GroupStep) -> None:
        """Weights that are whole on this process."""
        if not weights:
            return
        first, spec = weights[0][1], step.spec
        # A schedule-free optimizer has a copy of each weight that has to be moved as well, in memory that may be replaced.
        if (
            self._recorder.serves(first.device)
            and not is_fake(first)
            and not spec.schedule_free
            and not torch.is_grad_enabled()
        ):
            weights = self._steps_on(first.device).apply(weights, step)
        if weights:
            with own_precision(spec.precision, weights[0][1].device):
                for moves in _plain_torch.directions(weights, spec, step.stability):
                    step.apply_all(*moves)

    def _steps_on(self, device: torch.device) -> DeviceSteps:
        if self._device_steps is None or self._device_steps.device != device:
            self._device_steps = DeviceSteps(device, Kernels(), self._recorder)
        return self._device_steps

    def _apply_dtensors(self, weights: list[Weight], step: GroupStep) -> None:
        """Weights of which every rank has a piece."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "differentiable=True: a step on sharded weights (DTensor) cannot be differentiated through"
            )
        plan = self._sharded.of(weights, step.spec)
        if plan.whole:
            self._apply_local(_with_gradient(plan.whole), step)
        if plan.rounds:
            begun = self._overlap.take(plan.rounds)
            _move(directions(plan.rounds, step.spec, step.stability, begun), plan.rounds[0].device, step)

    def begin_next(self, group: dict[str, Any]) -> None:
        """When the step has ended: exchanges of the next penalty, if that is known to be a decoupled one at the next step."""
        rounds = self._sharded.rounds
        if rounds and group["decoupled"] and group["every"] == 1 and not torch.is_grad_enabled():
            with own_precision(group["precision"], rounds[0].device):
                self._overlap.begin(rounds)

    def _apply_local(self, weights: list[Weight], step: GroupStep) -> None:
        """DTensors that are whole on this process: what they hold is computed as any other weight is."""
        held = [(slot, local(p).detach()) for slot, p in weights]
        for (_, tensor), (_, p) in zip(held, weights, strict=True):
            grad = local_gradient(p)
            if grad.dtype is not tensor.dtype:
                tensor.grad_dtype = grad.dtype
            tensor.grad = grad
        self._apply_whole(held, replace(step, lent=LentGradients()))
        if not step.spec.decoupled:
            step.lend([tensor.grad for _, tensor in held], [p for _, p in weights])  # type: ignore[misc]

    def _apply_shared(self, weights: list[Weight], step: GroupStep) -> None:
        """Weights that every rank has, of which each computes some, if a trial finds that faster."""
        if self._ddp.begin(weights):
            _move(self._ddp.directions(step.spec, step.stability), weights[0][1].device, step)
        else:
            self._apply_whole(_with_gradient(weights), step)
        self._ddp.end()

    def warn_if_far(self, group: dict[str, Any], index: int, stacklevel: int) -> None:
        """Once, after the first penalty: a network that has been trained without the constraint may be far from it, and a
        full λ then undoes what it has learned. Reads one number back from the device."""
        if self._has_looked or self._residuals is None or is_capturing() or is_fake(self._residuals):
            return
        largest = self._residuals.nan_to_num(nan=-1.0).max().item()
        if largest < 0:  # none of the steps so far had a penalty
            return
        self._has_looked = True
        if not largest > _FAR or group["warmup"]:
            return
        name = constrained(group)[int(self._residuals.nan_to_num(nan=0.0).argmax())][0]
        # docs/fine-tuning.md: with the initial scale a warm-up did not help, with target 1 it lessened the loss of accuracy.
        advice = (
            "give it a smaller constraint"
            if group["scale"] == "initial"
            else "keep its layers' scales with scale='initial'; otherwise let the constraint grow with warmup=STEPS, or make "
            "it smaller"
        )
        warnings.warn(
            f"param group {index}: the weight {name!r} is far from its constraint (residual {largest:.3g}, 0 on it), and "
            f"constraint={group['constraint']:g} pulls on all it has learned. If the network is pretrained, {advice}.",
            stacklevel=stacklevel,
        )

    def _residuals_for(self, count: int, device: torch.device) -> Tensor:
        """The group's residuals, nan before the first step. The same memory at every step: a captured CUDA graph goes on
        writing where ``residuals`` reads."""
        kept = self._residuals
        if kept is None or len(kept) != count or kept.device != device:
            with torch.inference_mode(False):  # a tensor made in inference mode could not be written to after it
                kept = self._residuals = torch.full((count,), torch.nan, device=device)
        return kept

    def residuals(self, group: dict[str, Any], state: Mapping[Tensor, dict[str, Any]]) -> list[float]:
        """Of the last penalty step, by slot; a weight that has had none is measured now."""
        weights = constrained(group)
        kept = self._residuals
        values = [math.nan] * len(weights) if kept is None or len(kept) != len(weights) else kept.tolist()
        unknown = [(slot, p) for slot, (_, p) in enumerate(weights) if math.isnan(values[slot])]
        scales = None
        if unknown and group["scale"] == "initial":  # those of now: they are not settled before the first step
            scales = InitialScales().of(group, unknown, len(weights), state)
        spec = PenaltySpec.of(group, scales=scales)
        for slot, p in unknown:
            with own_precision("highest", p.device):
                values[slot] = _plain_torch.residual((slot, whole(p)), spec).item()
        return values

    def save_scales(self, state: MutableMapping[Tensor, dict[str, Any]]) -> None:
        self._initial_scales.save(state)

    def forget_scales(self) -> None:
        """They are read from the state again, or measured anew."""
        self._initial_scales = InitialScales()


def _move(moves: Iterable[Moves], device: torch.device, step: GroupStep) -> None:
    with own_precision(step.spec.precision, device):
        for batch in moves:
            step.apply_all(*batch)


def _coupled_factor(spec: PenaltySpec, grad_scale: Tensor | None) -> float | Tensor:
    """λ, with the factor that GradScaler has multiplied the gradients with: fused optimizers divide them by it themselves."""
    factor: float | Tensor = -spec.strength if spec.maximize else spec.strength
    for tensor in (spec.strength_tensor, grad_scale):
        if tensor is not None:
            factor = factor * (tensor.to(factor.device) if isinstance(factor, Tensor) else tensor)
    return factor


def _repetitions(matrices: list[Tensor]) -> frozenset[int]:
    """The slots of weights that have been listed before."""
    seen: set[int] = set()
    return frozenset(slot for slot, p in enumerate(matrices) if id(p) in seen or seen.add(id(p)))  # type: ignore[func-returns-value]


def _with_gradient(weights: list[Weight]) -> list[Weight]:
    return [weight for weight in weights if weight[1].grad is not None]
