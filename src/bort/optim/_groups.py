"""Which weights of a model are constrained, and why: a decision for each parameter, and a table of all decisions."""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy

from bort import _html
from bort._inspect import spellings
from bort._table import table
from bort.layers import linear_map
from bort.optim._classifier import classifiers

_COLUMNS = ("parameter", "shape", "constrained", "decayed", "reason")
_HEAD = ("head.*",)
_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)


@dataclass(frozen=True)
class Decision:
    """What :func:`param_groups` decided about one parameter."""

    name: str
    shape: tuple[int, ...]
    constrained: bool
    reason: str
    blocks: int = 1
    transposed: bool = False
    decayed: bool = False
    trained: bool = True


class ParamGroups(list[dict[str, Any]]):
    """Param groups for an optimizer: a plain list, with the decisions behind it. Print it to read them.

    Example:
        >>> isinstance(bort.param_groups(nn.Linear(8, 8)), optim.ParamGroups)
        True
    """

    def __init__(self, groups: Iterable[dict[str, Any]], decisions: Sequence[Decision]) -> None:
        super().__init__(groups)
        self.decisions = tuple(decisions)

    def __str__(self) -> str:
        return table(_COLUMNS, self._rows())

    __repr__ = __str__  # a list's own would print every weight

    def _repr_html_(self) -> str:
        return _html.notebook(_html.table(_COLUMNS, self._rows(), "Decisions about the parameters"))

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                d.name,
                "×".join(map(str, d.shape)),
                "yes" if d.constrained else "no",
                "yes" if d.decayed else "no",
                d.reason,
            )
            for d in self.decisions
        ]


def param_groups(
    model: nn.Module,
    constraint: float = 0.1,
    weight_decay: float = 0.0,
    exclude: Sequence[str] | None = None,
    *,
    qkv: Literal["whole", "split"] = "whole",
) -> ParamGroups:
    """Param groups that constrain the linear maps of a model and leave the rest alone.

    Constrained are the weights of linear layers, convolutions (grouped and depthwise ones block by block), transposed
    convolutions and attention's in-projections. Embeddings, norms, biases, everything of one dimension, parameters that
    no known layer owns and names matching ``exclude`` (shell patterns) are not. A weight that several modules share is
    listed once, and constrained only if all of them agree.

    Args:
        model: any module; only parameters that require a gradient end up in the groups.
        constraint: λ of the constrained weights.
        weight_decay: for weights of two or more dimensions; biases, norms and one-dimensional parameters get none. The
            groups carry it and ``constraint`` themselves, so the optimizer's own arguments of these names do not apply.
        exclude: patterns of parameter names to leave unconstrained; () for none. Default: the classifier, if its name says
            that it is one: ``head.*``, what a network of timm names as its classifier, and elsewhere the last linear layer
            (or convolution) if a part of its name is head, heads, head_dist, fc or classifier. Prefixes that torch.compile
            and DDP put before the names are ignored. A pattern that matches nothing is warned of, with the name of the
            classifier if there seems to be one.
        qkv: a fused query-key-value projection is one matrix ("whole") or three ("split").

    Returns:
        A list of named groups for any Bort optimizer. ``print(groups)`` shows each parameter's decision and its reason.

    Example:
        >>> print(bort.param_groups(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)), constraint=0.5))
        parameter  shape  constrained  decayed  reason
        ─────────  ─────  ───────────  ───────  ─────────────
        0.weight   8×8    yes          yes      linear
        0.bias     8      no           no       bias
        1.weight   8      no           no       1-dimensional
        1.bias     8      no           no       bias
    """
    if qkv not in ("whole", "split"):
        raise ValueError(f'qkv={qkv!r}: a fused projection is "whole" or "split"')
    decisions = _decisions(model, exclude, qkv)
    if exclude is not None:
        _warn_of_patterns(model, _patterns(exclude), decisions.values())
    return _groups(decisions, {"constraint": constraint}, {"weight_decay": weight_decay})


def groups_for_optimizer(model: nn.Module) -> ParamGroups:
    """The groups of :func:`param_groups` for an optimizer that has λ and the weight decay among its own arguments: groups
    that a setting does not concern have 0 of it, the others leave it to the optimizer."""
    groups = _groups(_decisions(model, None, "whole"), {}, {})
    if not groups:
        raise ValueError(
            f"{type(model).__name__} has no parameter that requires a gradient: unfreeze what is to be trained before the "
            "optimizer is made"
        )
    return groups


def _decisions(model: nn.Module, exclude: Sequence[str] | None, qkv: str) -> dict[Tensor, Decision]:
    patterns = (*_HEAD, *_patterns_of(classifiers(model))) if exclude is None else _patterns(exclude)
    decisions: dict[Tensor, Decision] = {}
    for prefix, module in model.named_modules():
        for local, p in module.named_parameters(prefix, recurse=False):
            decision = _decide(local, p, module, patterns, qkv)
            decisions[p] = _agree(decisions[p], decision) if p in decisions else decision
    return decisions


def _groups(decisions: dict[Tensor, Decision], constraint: dict[str, float], decay: dict[str, float]) -> ParamGroups:
    """One group for all parameters with the same settings. Constrained ones have those of ``constraint``, decayed ones those
    of ``decay``."""
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for p, d in decisions.items():
        if not d.trained:
            continue
        key = (not d.constrained, not d.decayed, d.blocks, d.transposed)
        if key not in groups:
            layout = {"blocks": d.blocks, "transposed": d.transposed}
            settings = constraint | layout if d.constrained else {"constraint": 0.0}
            groups[key] = {"params": [], **settings, **(decay if d.decayed else {"weight_decay": 0.0})}
        groups[key]["params"].append((d.name, p))
    return ParamGroups((groups[key] for key in sorted(groups)), list(decisions.values()))


def _decide(name: str, p: Tensor, module: nn.Module, exclude: Sequence[str], qkv: str) -> Decision:
    if is_lazy(p):
        raise ValueError(f"parameter {name!r} has no shape yet: run one batch through the lazy model first")
    shape, leaf = tuple(p.shape), name.rpartition(".")[2]

    def unconstrained(reason: str, *, decayed: bool = p.ndim >= 2) -> Decision:
        return Decision(name, shape, False, reason, decayed=decayed and p.requires_grad, trained=p.requires_grad)

    if not p.requires_grad:
        return unconstrained("frozen")
    if p.ndim < 2:
        return unconstrained("bias" if "bias" in leaf else f"{p.ndim}-dimensional", decayed=False)
    if not p.numel():
        return unconstrained("empty")
    if not p.is_floating_point():
        return unconstrained(f"{p.dtype}: the constraint is for real weights")
    pattern = next((pattern for pattern in exclude if _matches(name, pattern)), None)
    if pattern is not None:
        return unconstrained(f"excluded by {pattern!r}")
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return unconstrained("embedding: a look-up, not a linear map of its input")
    if isinstance(module, _NORMS):
        return unconstrained("norm", decayed=False)
    if "bias" in leaf:
        return unconstrained("bias", decayed=False)
    if "lora_" in name:
        return unconstrained("a factor of LoRA: the constraint is for the product BA, not for A and B one by one")
    linear = linear_map(name, p, module, split_qkv=qkv == "split")
    if linear is None:
        return unconstrained(f"not a known linear map: {leaf} of {type(module).__name__}")
    return Decision(name, shape, True, linear.kind, linear.blocks, linear.transposed, decayed=True)


def _patterns(exclude: Sequence[str]) -> tuple[str, ...]:
    return (exclude,) if isinstance(exclude, str) else tuple(exclude)


def _patterns_of(layers: Sequence[str]) -> tuple[str, ...]:
    """Those that match all parameters of the layers."""
    return tuple(f"{layer}.*" for layer in layers)


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(spellings(name)[1], pattern)


def _warn_of_patterns(model: nn.Module, patterns: Sequence[str], decisions: Iterable[Decision]) -> None:
    """A pattern that matches nothing may have been meant for the classifier. The usual one may match nothing if none is in
    sight."""
    decisions = list(decisions)
    unused = [pattern for pattern in patterns if not any(_matches(d.name, pattern) for d in decisions)]
    constrained = [decision.name for decision in decisions if decision.constrained]
    heads = [head for head in classifiers(model) if any(_matches(name, f"{head}.*") for name in constrained)]
    if not unused or (tuple(patterns) == _HEAD and not heads):
        return
    advice = ""
    if heads:
        those = ", ".join(map(repr, _patterns_of(heads)))
        advice = f"; the classifier seems to be {' and '.join(heads)}: exclude=({those},) leaves it unconstrained"
    warnings.warn(
        f"exclude: no parameter's name matches {', '.join(map(repr, unused))}{advice}, exclude=() says that all is wanted",
        stacklevel=3,
    )


def _agree(first: Decision, second: Decision) -> Decision:
    """One decision for a weight that two modules share: constrained only if both want it in the same way."""
    if (first.constrained, first.blocks, first.transposed) == (second.constrained, second.blocks, second.transposed):
        return first
    objector, other = (second, first) if first.constrained else (first, second)
    return Decision(
        first.name,
        first.shape,
        False,
        f"shared by {first.name} and {second.name}; {objector.name}: {objector.reason}"
        if not objector.constrained
        else f"shared by {first.name} and {second.name}, which read it differently ({objector.reason}; {other.reason})",
        decayed=first.decayed and second.decayed,
    )
