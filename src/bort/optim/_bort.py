r"""Bort-X: what `bortify` adds to an optimizer X (paper, section 3.3).

.. math::
    \text{coupled} \quad   g &\leftarrow g + \lambda (W W^T W - s W), \text{ then X's own step on } g   && \text{equ:bort} \\
    \text{decoupled} \quad W &\leftarrow W - \alpha \lambda (W W^T W - s W), \text{ then X's own step}

Coupled, the penalty passes through weight decay and momentum with the gradient. Decoupled, it acts on the weight itself, as
weight decay does in AdamW, and no adaptive scaling distorts it.

:mod:`bort.optim.reference` has the same in plain torch, one weight at a time. Here is torch's optimizer contract only; the
penalty of a param group is in `_group_penalty`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bort import penalty
from bort.optim import _settings
from bort.optim._apply import LentGradients
from bort.optim._fused_sgd import clear_momentum, without_momentum
from bort.optim._group_penalty import GroupPenalty
from bort.optim._groups import groups_for_optimizer
from bort.optim._spec import Scale, constrained
from bort.optim.sharded import current_routing


class Bort(Optimizer):
    """The mixin in front of a torch optimizer. Made by :func:`bort.bortify`; see there for the arguments.

    Example:
        >>> isinstance(bort.BortS(nn.Linear(8, 8), lr=0.1), optim.Bort)
        True
    """

    _base_step: ClassVar[Callable[..., Any]]
    _decoupled: ClassVar[bool]
    _takes_closure: ClassVar[bool]
    _writes_gradients: ClassVar[bool]
    """Whether the base optimizer changes gradients in place (timm's LAMB clips them)."""
    _takes_params: ClassVar[bool]
    """Whether the first argument is ``params``. (pytorch_optimizer's AdamMini makes groups of a model itself.)"""

    def __init__(
        self,
        *args: Any,
        constraint: float = 0.1,
        decoupled: bool | None = None,
        every: int = 1,
        warmup: int = 0,
        scale: Scale = 1.0,
        mode: penalty.Mode = "full",
        precision: str = "high",
        shard: bool = False,
        **kwargs: Any,
    ) -> None:
        model = args[0] if args else kwargs.get("params")
        if isinstance(model, nn.Module) and self._takes_params:
            if constraint:
                _settings.refuse_foreign(model)
            groups = groups_for_optimizer(model)
            if args:
                args = (groups, *args[1:])
            else:
                kwargs["params"] = groups
        self._own_defaults: dict[str, Any] = {
            "constraint": constraint,
            "decoupled": self._decoupled if decoupled is None else decoupled,
            "every": every,
            "warmup": warmup,
            "scale": scale,
            "mode": mode,
            "precision": precision,
            "shard": shard,
            **_settings.LAYOUT,
        }
        super().__init__(*args, **kwargs)
        # The stability guard has to know a rate that may come back, each group its own.
        self._first_rates = [_rate_of(group) for group in self.param_groups]
        self._prepare()
        for index, group in enumerate(self.param_groups):
            _settings.warn(group, index, stacklevel=3)
        self._has_warned_of_shapes = _settings.warn_of_shapes(self.param_groups, type(self).__name__, stacklevel=3)
        _settings.warn_of_nothing(self.param_groups, constraint, type(self).__name__, model, stacklevel=3)

    def _prepare(self) -> None:
        """What torch neither pickles nor copies with an optimizer."""
        self._penalties: defaultdict[int, GroupPenalty] = defaultdict(GroupPenalty)
        self._begins_early = False
        _stay_out_of_graphs()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        # The base class calls this from its __init__, when `defaults` holds its own settings and not yet ours.
        for key, default in self._own_defaults.items():
            self.defaults.setdefault(key, default)
        index = len(self.param_groups)
        # `param_groups`, which knows the layers, says how each weight is cut in blocks.
        if isinstance(param_group, dict):
            param_group.setdefault("layers_known", "blocks" in param_group)
        super().add_param_group(param_group)
        if self.param_groups[index]["every"] != 1 or self.param_groups[index]["warmup"]:
            # There from the beginning: torch.distributed.checkpoint takes a group's keys to be the same at all times.
            self.param_groups[index].setdefault("penalty_step", 0)
        try:
            _settings.make_numbers_plain(self.param_groups[index])
            _settings.check(self.param_groups[index], index)
        except Exception:
            self.param_groups.pop()  # refused: leave the optimizer as it was
            raise
        if "_penalties" in self.__dict__:  # added by the user; __init__ warns itself, at the user's line
            if len(self._first_rates) != index:  # some were taken out by hand: whose rates these are is not known
                self._first_rates = [None] * index
            self._first_rates.append(_rate_of(self.param_groups[index]))
            _settings.warn(self.param_groups[index], index, stacklevel=3)
            if not self._has_warned_of_shapes:
                added = self.param_groups[index:]
                self._has_warned_of_shapes = _settings.warn_of_shapes(added, type(self).__name__, stacklevel=3)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_first_rates": self._first_rates}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Also reached through load_state_dict: a checkpoint of the plain optimizer leaves our settings as they are now.
        current = self.__dict__.get("param_groups", [])
        super().__setstate__(state)
        if "_own_defaults" not in self.__dict__:  # unpickled or copied
            self._own_defaults = {
                key: self.defaults.get(key, _settings.LATER.get(key))
                for key in (*_settings.SETTINGS, *_settings.LAYOUT)
            }
            self._has_warned_of_shapes = False
            self.__dict__.setdefault("_first_rates", [_rate_of(group) for group in self.param_groups])
            self._prepare()
        for index, group in enumerate(self.param_groups):
            settings = current[index] if index < len(current) else self._own_defaults
            for key in self._own_defaults:
                group.setdefault(key, settings[key])
        for group_penalty in self._penalties.values():
            group_penalty.forget_scales()

    def step(self, closure: Callable[[], Any] | None = None, **arguments: Any) -> Any:
        """One step of the base optimizer with the penalty in it. A closure is evaluated first, once, and the base optimizer
        gets its loss; other keywords are those of the base optimizer's own step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            if self._takes_closure:
                arguments["closure"] = _Evaluated(loss, type(self).__name__)
        lent = LentGradients()
        try:
            with torch.set_grad_enabled(self.defaults.get("differentiable", False)):
                self._apply_penalties(lent)
            if self._writes_gradients:
                lent.lend_copies(p for group in self.param_groups for p in group["params"])
            found_inf: Tensor | None = getattr(self, "found_inf", None)
            fresh = [] if found_inf is None else without_momentum(self)
            type(self)._base_step(self, **arguments)
            if found_inf is not None:
                clear_momentum(self, fresh, found_inf)
        finally:
            lent.give_back()
        if any(group["scale"] == "initial" for group in self.param_groups):
            self._save_scales()
        if self._begins_early:
            self._begin_next()
        return loss

    def _apply_penalties(self, lent: LentGradients) -> None:
        """Move decoupled weights, and lend coupled ones their penalised gradients."""
        self._begins_early = current_routing().overlap_bytes > 0
        # All gradients are looked at first: one that is refused leaves every weight and every count of steps as it was.
        pending = [
            (index, self._penalties[index], group, self._penalties[index].active_weights(group))
            for index, group in enumerate(self.param_groups)
            if group["constraint"]
        ]
        if getattr(self, "grad_scale", None) is not None:
            for index, _, group, weights in pending:
                _settings.refuse_overflow(group, index, weights)
        for index, group_penalty, group, weights in pending:
            # With another number of groups some were taken out by hand, and it is not known which rates were theirs.
            first_rate = self._first_rates[index] if len(self._first_rates) == len(self.param_groups) else None
            for step in group_penalty.begin(self, group, weights, lent, first_rate):
                group_penalty.apply(step)
        for index, group_penalty, group, _ in pending:
            group_penalty.warn_if_far(group, index, stacklevel=6)

    @torch.no_grad()
    def _begin_next(self) -> None:
        for index, group in enumerate(self.param_groups):
            if group["constraint"]:
                self._penalties[index].begin_next(group)

    def _save_scales(self) -> None:
        for group_penalty in self._penalties.values():
            group_penalty.save_scales(self.state)

    def constrained(self) -> list[tuple[str, Tensor]]:
        """The names and weights that have a constraint, of all groups.

        Names are those of the parameters where the optimizer was given them, otherwise "group.index". A name that several
        weights have becomes "group.name", or "group.place.name" if that is not enough to tell them apart.
        """
        found = [
            (index, place, name if "param_names" in group else f"{index}.{name}", p)
            for index, group in enumerate(self.param_groups)
            for place, (name, p) in enumerate(constrained(group))
        ]
        names = [name for _, _, name, _ in found]
        for longer in ("{0}.{2}", "{0}.{1}.{2}"):
            count = Counter(names)
            names = [
                name if count[name] == 1 else longer.format(*each) for name, each in zip(names, found, strict=True)
            ]
        if len(set(names)) < len(names):  # longer names may be those that the user gave to others
            names = [f"{index}.{place}.{name}" for index, place, name, _ in found]
        return [(name, p) for name, (*_, p) in zip(names, found, strict=True)]

    @torch.no_grad()
    def residuals(self) -> dict[str, float]:
        """Each constrained weight's distance to its constraint (:func:`bort.penalty.residual`), for logging.

        The numbers come from the Gram matrices of the last penalty step and cost one read back from the device; a
        weight that has not had a step yet is measured now. If weights are sharded, all ranks have to call this. Keys are
        the names of :meth:`constrained`.
        """
        values = [
            v
            for index, group in enumerate(self.param_groups)
            for v in self._penalties[index].residuals(group, self.state)
        ]
        return {name: value for (name, _), value in zip(self.constrained(), values, strict=True)}


def _rate_of(group: dict[str, Any]) -> float | Tensor | None:
    """The learning rate as it is now. A copy, since a schedule writes to a rate that is a tensor."""
    rate: float | Tensor | None = group.get("lr")
    return rate.detach().clone() if isinstance(rate, Tensor) else rate


class _Evaluated:
    """Stands in for a closure that has been evaluated: there are optimizers whose step depends on the loss."""

    def __init__(self, loss: Any, optimizer: str) -> None:
        self._loss = loss
        self._optimizer = optimizer
        self._asked = False

    def __call__(self) -> Any:
        if self._asked:
            raise RuntimeError(
                f"{self._optimizer}: its base class evaluates the closure several times a step, and the penalty has no one "
                "place in it"
            )
        self._asked = True
        return self._loss


@cache
def _stay_out_of_graphs() -> None:
    """Keep torch.compile away from the penalties: they have kernels of their own. As a decorator, torch.compiler.disable
    would load the compiler, a second or two, with ``import bort``; torch itself loads it with the first optimizer."""
    for name in ("_apply_penalties", "_begin_next", "_save_scales"):
        setattr(Bort, name, torch.compiler.disable(getattr(Bort, name)))  # type: ignore[no-untyped-call]
