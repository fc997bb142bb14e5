"""Turn any torch optimizer class into its bounded-orthogonal subclass."""

from __future__ import annotations

import copyreg
import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import SGD, Optimizer

from bort.optim._bort import Bort
from bort.optim._settings import SETTINGS

_WRITERS = ("timm.optim.lamb", "timm.optim.nvnovograd")  # modules whose optimizers scale gradients in place

# What optimizers that wrap another one (Lookahead, SAM, ZeroRedundancyOptimizer) call it among their arguments.
_WRAPPED = ("optimizer", "base_optimizer", "optimizer_class")


class _BortClass(type):
    """The metaclass of the classes made here. Pickle looks for a class in its module, where most of these are not;
    for a metaclass it can be given a function (`_reduce`), which says: bortify of the base class."""

    base: type[Optimizer]


@functools.cache
def bortify(cls: type[Optimizer]) -> type[Any]:
    """The subclass of ``cls`` that holds its weights to the bounded orthogonal constraint of the paper.

    It takes the arguments of ``cls``, in the same positions and with the same defaults. The first may also be an nn.Module,
    wrapped or not: ``BortA(model, lr=1e-3)``. It is then grouped as by :func:`bort.param_groups`, with the optimizer's own
    λ and weight decay: linear maps are constrained, as far as they are trained, and embeddings, tokens, norms, biases and the
    classifier are not; biases, norms and one-dimensional parameters have no weight decay. ``print(bort.param_groups(model))``
    shows the decisions. Plain parameters are all constrained that have two or more dimensions, but for those that cannot be
    the matrix of a layer (1 × … × …, or by their names tokens and position tables).

    These keywords are added, each of which a param group may set for itself:

    Args:
        constraint: λ, the weight of the penalty; 0 switches it off.
        decoupled: apply the penalty to the weight, as AdamW does weight decay, rather than add it to the gradient.
            Default: False for SGD and its subclasses, whose steps are proportional to the gradient; True for all others.
        every: apply every·λ at each every-th step, at 1/every of the cost.
        warmup: let λ grow from 0 to ``constraint`` over so many steps: for networks that begin far from it, such as
            pretrained ones with target 1. (That of :func:`bort.constraint_for` is the learning rate's, and this one is not
            counted there.)
        scale: s of the target WᵀW = s·I, or "adaptive": (mean row norm)². "initial", for networks that have been trained
            without the constraint: s is each weight's own mean of σ² at the first step, ‖W‖²_F / min(m, n) (of each block, if
            it has blocks; 1 for a weight that is zero). λ is then divided by s, so that it pulls on all weights alike, and
            residuals are those of W/√s. The optimizer's state has s as ``initial_scale``.
        mode: "full" (the paper), "rows" or "columns" (norms only), each also as "l1-…".
        precision: of the penalty's products, in the words of torch.set_float32_matmul_precision: "highest" is float32;
            "high", the default, keeps the penalty within 1% on a GPU, and is float32 on a CPU; "medium" drops what short rows
            need for that, and on CPUs that have it computes the second product in bfloat16 (0.3%).
        shard: under DistributedDataParallel, let each rank compute some of the penalties and exchange them, if a trial
            in the first steps finds that faster. Those of DTensors (FSDP2) are always computed by all ranks together.

    A group may also have ``blocks`` and ``transposed`` (see :func:`bort.penalty.matrices`); :func:`bort.param_groups`
    sets them from the modules. The same base always gives the same class, and a Bort class is returned as it is.

    Example:
        >>> BortAdam = bort.bortify(torch.optim.Adam)
        >>> optimizer = BortAdam(nn.Linear(8, 8), lr=1e-3, constraint=0.5)
        >>> isinstance(optimizer, torch.optim.Adam)
        True
    """
    if not (isinstance(cls, type) and issubclass(cls, Optimizer)):
        raise TypeError(f"bortify takes a torch.optim.Optimizer class, not {cls!r}")
    if issubclass(cls, Bort):
        return cls
    signature = inspect.signature(cls)
    wrapped = next((name for name in _WRAPPED if name in signature.parameters), None)
    if wrapped is not None:
        raise TypeError(
            f"{cls.__name__} wraps another optimizer ({wrapped}=…): bortify that one, and give it to {cls.__name__}"
        )
    clash = sorted(set(SETTINGS) & set(signature.parameters))
    if clash:
        raise TypeError(f"{cls.__name__} has arguments of its own called {', '.join(clash)}: bortify cannot add Bort's")
    step = _without_hooks(cls.step)
    closure = inspect.signature(step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise TypeError(
            f"{cls.__name__} evaluates its closure several times a step: the penalty has no one place in it"
        )
    decoupled = not issubclass(cls, SGD)
    metaclass: Any = type(cls)
    return _metaclass(metaclass)(
        _name(cls),
        (Bort, cls),
        {
            "__module__": "bort.optim",
            "__doc__": f"{cls.__name__} with the bounded orthogonal constraint; arguments: see :func:`bort.bortify`.",
            "__signature__": _with_settings(signature, decoupled),
            "_base_step": staticmethod(step),
            "_decoupled": decoupled,
            "_takes_closure": closure is not None,
            "_takes_params": _takes_params(signature),
            "_writes_gradients": any(base.__module__ in _WRITERS for base in cls.__mro__),
            "base": cls,
        },
    )


@functools.cache
def _metaclass(theirs: Any) -> type[_BortClass]:
    """Of a class that has a metaclass of its own, such as abc.ABCMeta: both in one, since Python takes one only."""
    if issubclass(_BortClass, theirs):
        return _BortClass
    both = type(f"_Bort{theirs.__name__}", (_BortClass, theirs), {})
    copyreg.pickle(both, _reduce)
    return both


def _name(cls: type[Optimizer]) -> str:
    """Bort-X (section 4): BortS, BortA and BortL for the paper's three, the whole name for the others."""
    return {"SGD": "BortS", "AdamW": "BortA", "Lamb": "BortL"}.get(cls.__name__, f"Bort{cls.__name__}")


def _without_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    # torch wraps the step of a class in its hooks when the first instance is made. It wraps Bort's step too, so a base step
    # that is still wrapped would run every hook a second time.
    unwrapped: Callable[..., Any] = inspect.unwrap(step, stop=lambda f: not getattr(f, "hooked", False))
    return unwrapped


def _takes_params(signature: inspect.Signature) -> bool:
    return next(iter(signature.parameters), None) == "params"


def _with_settings(signature: inspect.Signature, decoupled: bool) -> inspect.Signature:
    ours = inspect.signature(Bort.__init__).parameters
    settings = [ours[key].replace(default=decoupled) if key == "decoupled" else ours[key] for key in SETTINGS]
    theirs = list(signature.parameters.values())
    if _takes_params(signature):
        theirs[0] = theirs[0].replace(annotation=_or_module(theirs[0].annotation))
    rest = [p for p in theirs if p.kind is p.VAR_KEYWORD]
    return signature.replace(parameters=[p for p in theirs if p not in rest] + settings + rest)


def _or_module(annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        return annotation
    return f"{annotation} | torch.nn.Module" if isinstance(annotation, str) else annotation | nn.Module


def _reduce(cls: _BortClass) -> tuple[Callable[..., Any], tuple[type[Optimizer]]] | str:
    return (bortify, (cls.base,)) if "base" in cls.__dict__ else cls.__qualname__  # a user's subclass: by its own name


copyreg.pickle(_BortClass, _reduce)
