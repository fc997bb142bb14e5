r"""Bort-X: what `bortify` adds to an optimizer X (paper, section 3.3).

.. math::
    \text{coupled} \quad   g &\leftarrow g + \lambda (W W^T W - s W), \text{ then X's own step on } g   && \text{equ:bort} \\
    \text{decoupled} \quad W &\leftarrow W - \alpha \lambda (W W^T W - s W), \text{ then X's own step}

Coupled, the penalty passes through weight decay and momentum with the gradient. Decoupled, it acts on the weight itself, as
weight decay does in AdamW, and no adaptive scaling distorts it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from bort import penalty
from bort.optim import _settings
from bort.optim.kernels import _run as _cuda
from bort.optim import _plain_torch as _dense
from bort.optim._plain_torch import Weight
from bort.optim.sharded._layout import is_dtensor, whole
from bort.optim._apply import Turn, lend, move
from bort._precision import own_precision


class Bort(Optimizer):
    """The mixin in front of a torch optimizer. Made by :func:`bort.bortify`; see there for the arguments."""

    _base_step: ClassVar[Callable[[Optimizer], Any]]
    _decoupled: ClassVar[bool]
    _writes_gradients: ClassVar[bool]

    def __init__(
        self,
        *args: Any,
        constraint: float = 0.1,
        decoupled: bool | None = None,
        every: int = 1,
        scale: penalty.Scale = 1.0,
        mode: penalty.Mode = "full",
        precision: str = "high",
        shard: bool = False,
        **kwargs: Any,
    ) -> None:
        self._settings: dict[str, Any] = {
            "constraint": constraint,
            "decoupled": self._decoupled if decoupled is None else decoupled,
            "every": every,
            "scale": scale,
            "mode": mode,
            "precision": precision,
            "shard": shard,
            **_settings.LAYOUT,
        }
        _stay_out_of_graphs()
        super().__init__(*args, **kwargs)
        self._residuals: dict[int, Tensor] = {}
        self._divisions: dict[int, dict[Any, _cuda.Division]] = {}
        self._rounds: dict[int, tuple[Any, list[Any]]] = {}
        self._shares: dict[int, Any] = {}
        for index, group in enumerate(self.param_groups):
            _settings.warn(group, index, stacklevel=3)
        wanted = [group for group in self.param_groups if group["constraint"]]
        if wanted and not any(_settings.constrained(group) for group in wanted):
            warnings.warn(
                f"{type(self).__name__} has nothing to constrain: none of its "
                f"{sum(len(group['params']) for group in wanted)} parameters with constraint > 0 has two or more dimensions.",
                stacklevel=2,
            )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        # The base class calls this from its __init__, when `defaults` holds its own settings and not yet ours.
        for key, default in self._settings.items():
            self.defaults.setdefault(key, default)
        super().add_param_group(param_group)
        index = len(self.param_groups) - 1
        try:
            _settings.check(self.param_groups[index], index)
        except Exception:
            self.param_groups.pop()  # refused: leave the optimizer as it was
            raise
        if "_residuals" in self.__dict__:  # added later by the user; __init__ has its own warnings, at the user's line
            _settings.warn(self.param_groups[index], index, stacklevel=3)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Also reached through load_state_dict: a checkpoint of the plain optimizer leaves our settings as they are now.
        before = self.__dict__.get("param_groups", [])
        super().__setstate__(state)
        if "_settings" not in self.__dict__:  # unpickled or copied: torch keeps defaults, groups and state only
            self._settings = {key: self.defaults[key] for key in (*_settings.SETTINGS, *_settings.LAYOUT)}
            self._residuals, self._divisions, self._rounds, self._shares = {}, {}, {}, {}
            _stay_out_of_graphs()
        for index, group in enumerate(self.param_groups):
            current = before[index] if index < len(before) else self._settings
            for key in self._settings:
                group.setdefault(key, current[key])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of the base optimizer with the penalty in it. A closure is evaluated first, once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        lent: list[tuple[Tensor, Tensor]] = []
        try:
            with torch.set_grad_enabled(self.defaults.get("differentiable", False)):
                self._apply_penalties(lent)
            if self._writes_gradients:
                self._lend_copies(lent)
            type(self)._base_step(self)
        finally:
            for p, grad in lent:
                p.grad = grad
        return loss

    def _apply_penalties(self, lent: list[tuple[Tensor, Tensor]]) -> None:
        """Move decoupled weights; lend coupled ones a penalised gradient, and note in ``lent`` what to give back.

        ``.grad`` itself is never written to: it is the user's, and may be shared.
        """
        distributed = dist.is_available() and dist.is_initialized()
        due: list[tuple[int, dict[str, Any], list[Weight], int]] = []
        for index, group in enumerate(self.param_groups):
            constrained = _settings.constrained(group)
            # What all ranks compute together, they compute with or without a gradient: one that has none must not leave the
            # others waiting, though it does not move it. (This runs at every step: no calls where none are needed.)
            together = distributed and group["shard"]
            weights = [
                (slot, p)
                for slot, (name, p) in enumerate(constrained)
                if (
                    (distributed and (together or is_dtensor(p)) and p.requires_grad)
                    if (grad := p.grad) is None
                    else (grad.layout is torch.strided or _settings.refuse_gradient(grad, name))
                )
            ]
            if group["constraint"] and group.get("train_mode", True) and _is_due(group):
                due.append((index, group, weights, len(constrained)))
        for index, group, weights, count in due:
            if weights:
                residuals = self._residuals_of(index, count, weights[0][1].device)
                judged = _settings.judged(group, self.defaults.get("lr"))
                self._penalise(weights, Turn(index, group, judged, residuals, lent, distributed))

    def _penalise(self, weights: list[Weight], turn: Turn) -> None:
        if turn.distributed:
            sharded = [weight for weight in weights if is_dtensor(weight[1])]
            if sharded:
                self._penalise_sharded(sharded, turn)
                weights = [weight for weight in weights if not is_dtensor(weight[1])]
            if not weights:
                return
        if not (turn.group["shard"] and turn.distributed):
            self._penalise_whole(weights, turn)
        elif dist.get_world_size() > 1:
            self._penalise_shared(weights, turn)
        else:
            self._penalise_whole([weight for weight in weights if weight[1].grad is not None], turn)

    def _penalise_whole(self, weights: list[Weight], turn: Turn) -> None:
        """Weights that are whole on this process: by the kernels on a GPU, the rest by plain torch."""
        group, judged, rest = turn.group, turn.judged, weights
        if weights and weights[0][1].is_cuda:
            division = _cuda.divide(weights, group, self._divisions.setdefault(turn.index, {}))
            rest = division.rest
            if group["decoupled"]:
                _cuda.decouple(division, group, turn.residuals, judged, getattr(self, "found_inf", None))
            else:
                for p, grad in _cuda.couple(division, group, turn.residuals, judged, getattr(self, "grad_scale", None)):
                    lend(p, grad, turn.lent)
        if not rest:
            return
        with own_precision(group["precision"], rest[0][1].device):
            for batch, directions, distances in _dense.directions(rest, group, judged):
                for weight, direction, distance in zip(batch, directions, distances, strict=True):
                    move(self, weight, direction, distance, turn)

    def _penalise_sharded(self, weights: list[Weight], turn: Turn) -> None:
        """DTensors: no rank has a whole matrix, see `_sharded`."""
        from bort.optim.sharded import _dtensor as _sharded

        if torch.is_grad_enabled():
            raise RuntimeError(
                "differentiable=True: a step on sharded weights (DTensor) cannot be differentiated through"
            )
        group = turn.group
        placed = [(id(p), p.placements) for _, p in weights]  # type: ignore[attr-defined]
        key = (placed, [group[name] for name in ("mode", "scale", "blocks")])
        if self._rounds.get(turn.index, ((), []))[0] != key:
            self._rounds[turn.index] = (key, _sharded.plan(weights, group))
        with own_precision(group["precision"], self._rounds[turn.index][1][0].jobs[0].layout.device):
            for weight, direction, distance in _sharded.directions(self._rounds[turn.index][1], group, turn.judged):
                move(self, weight, direction, distance, turn)

    def _penalise_shared(self, weights: list[Weight], turn: Turn) -> None:
        """Whole weights, of which this rank computes its share; see `_share`."""
        from bort.optim.sharded import _ddp as _share

        share = self._shares.setdefault(turn.index, _share.Share())
        if share.begin(weights):
            with own_precision(turn.group["precision"], weights[0][1].device):
                for weight, direction, distance in share.directions(turn.group, turn.judged):
                    move(self, weight, direction, distance, turn)
        else:
            self._penalise_whole([weight for weight in weights if weight[1].grad is not None], turn)
        share.end()

    def _lend_copies(self, lent: list[tuple[Tensor, Tensor]]) -> None:
        """Some optimizers of timm (LAMB clips) write into the gradients; ours gives them copies to write into."""
        have = {p for p, _ in lent}
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and p not in have:
                    lend(p, p.grad.clone(), lent)

    def _residuals_of(self, index: int, count: int, device: torch.device) -> Tensor:
        """Where a group's residuals are kept, nan before the first step. Always the same memory: a captured CUDA graph
        goes on writing where residuals() reads."""
        kept = self._residuals.get(index)
        if kept is None or len(kept) != count or kept.device != device:
            with torch.inference_mode(False):  # it has to outlive a step in inference mode
                kept = self._residuals[index] = torch.full((count,), torch.nan, device=device)
        return kept

    def constrained(self) -> list[tuple[str, Tensor]]:
        """Names and weights that have a constraint, of all groups; names as in :meth:`residuals`."""
        return [
            (name if "param_names" in group else f"{index}.{name}", p)
            for index, group in enumerate(self.param_groups)
            for name, p in _settings.constrained(group)
        ]

    @torch.no_grad()
    def residuals(self) -> dict[str, float]:
        """Each constrained weight's distance to its constraint (:func:`bort.penalty.residual`), for logging.

        The numbers come from the Gram matrices of the last penalty step and cost one read back from the device; a
        weight that has not had a step yet is measured now; if it is sharded, all ranks have to ask. Keys are parameter
        names where the optimizer was given them, otherwise "group.index".
        """
        found: dict[str, float] = {}
        for index, group in enumerate(self.param_groups):
            reading = {key: group[key] for key in ("scale", "mode", "blocks", "transposed")}
            weights = _settings.constrained(group)
            kept = self._residuals.get(index)
            values = [math.nan] * len(weights) if kept is None or len(kept) != len(weights) else kept.tolist()
            for (name, p), value in zip(weights, values, strict=True):
                if math.isnan(value):
                    with own_precision("highest", p.device):
                        value = penalty.residual(whole(p), **reading).item()
                found[name if "param_names" in group else f"{index}.{name}"] = value
        return found


@cache
def _stay_out_of_graphs() -> None:
    """torch.compile leaves the penalties alone: they have kernels of their own. A decorator would say so too, but load the
    compiler, a second or two, for everyone who imports bort; torch loads it with the first optimizer in any case."""
    Bort._apply_penalties = torch.compiler.disable(Bort._apply_penalties)  # type: ignore[method-assign,no-untyped-call]


def _is_due(group: dict[str, Any]) -> bool:
    """Whether this step is a k-th one. The count lives in the group, so that a checkpoint carries it."""
    if group["every"] == 1:
        return True
    if _is_capturing():
        raise RuntimeError(
            f"every={group['every']} cannot be captured in a CUDA graph: each replay would repeat the decision of "
            "one step. Use every=1 with a captured step."
        )
    group["penalty_step"] = group.get("penalty_step", 0) + 1
    return bool(group["penalty_step"] % group["every"] == 0)


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
