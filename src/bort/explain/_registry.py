"""Saliency methods by name: the package's own, those of other packages, and those that a program registers.

Another package adds a method with an entry point, and nothing else, in its pyproject.toml::

    [project.entry-points."bort.methods"]
    mine = "my_package:mine"

The entry point is a function ``(model, x, target=None, **options) -> (N, H, W)``, or a :class:`Method` around one if it is
slow or has options to be set in the explorer: a plain function is taken for a fast one without. It appears under the entry
point's name in :func:`names`, in the commands, the report and the explorer.
"""

from __future__ import annotations

import difflib
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import Final

from torch import Tensor, nn

from bort._inspect import Target
from bort.explain._cam import cam
from bort.explain._guided_ig import guided_ig
from bort.explain._integrated import integrated_gradients
from bort.explain._rise import rise
from bort.explain._sat import sat
from bort.explain._setting import Range, Setting, settings_of
from bort.explain._xrai import xrai

GROUP: Final = "bort.methods"
"""The group of the entry points."""


@dataclass(frozen=True)
class Method:
    """A saliency method and what programs need to know of it. It is called as its function is.

    Example:
        >>> method = explain.get("rise")
        >>> method.slow, "masks" in method.options
        (True, True)
        >>> method(nets.create("lenet"), torch.rand(1, 1, 28, 28), masks=10).shape
        torch.Size([1, 28, 28])
    """

    name: str
    function: Callable[..., Tensor]
    """``(model, x, target=None, **options)`` -> saliency maps (N, H, W) of the images (N, C, H, W)."""
    slow: bool = False
    """Whether it takes much longer than a few passes through the model: the explorer computes it in the background."""
    title: str = ""
    """What it is called on pages; empty: as its name."""
    signed: bool = False
    """Whether zero has a meaning and values below it speak against the class: pictures then show both sides."""
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Options that can be set in the explorer, with their smallest and largest values: {"steps": (1, 200)}, or for True and
    False {"signed": (False, True)}."""

    def __post_init__(self) -> None:
        settings_of(self.function, self.ranges)  # a wrong range is an error here, and not in the explorer

    @property
    def settings(self) -> dict[str, Setting]:
        """These options by name."""
        return settings_of(self.function, self.ranges)

    @property
    def label(self) -> str:
        """The title, or the name of a method that has none."""
        return self.title or self.name

    @property
    def options(self) -> tuple[str, ...]:
        """Its keywords beside model, x and target. One that is called "progress" takes a :data:`Progress`."""
        parameters = list(inspect.signature(self.function).parameters.values())[3:]
        return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))

    def __call__(self, model: nn.Module, x: Tensor, target: Target = None, **options: object) -> Tensor:
        return self.function(model, x, target, **options)


class _Registry:
    """The methods by name. Entry points are loaded when the methods are first asked for: that imports other packages."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a package that is being loaded may register methods itself
        self._loaded = False
        self._methods: dict[str, Method] = {}
        self.add(Method("cam", cam, title="CAM"))
        steps = {"steps": (10, 400)}
        self.add(Method("guided-ig", guided_ig, slow=True, title="Guided IG", signed=True, ranges=steps))
        steps = {"steps": (1, 200)}
        self.add(Method("ig", integrated_gradients, title="Integrated Gradients", signed=True, ranges=steps))
        masks = {"masks": (100, 8000), "cells": (2, 16), "keep": (0.1, 0.9)}
        self.add(Method("rise", rise, slow=True, title="RISE", ranges=masks))
        self.add(Method("sat", sat, title="SAT, the paper's method"))  # its sliders in the explorer need no new pass
        self.add(Method("xrai", xrai, slow=True, title="XRAI", ranges={"min_pixels": (1, 500)}))

    def add(self, method: Method) -> None:
        with self._lock:
            if method.name in self._methods:
                raise ValueError(f"a method called {method.name!r} is there already")
            self._methods[method.name] = method

    def methods(self) -> dict[str, Method]:
        with self._lock:
            if not self._loaded:
                self._loaded = True
                self._load()
            return self._methods

    def _load(self) -> None:
        failures = []
        for entry in entry_points(group=GROUP):
            try:
                self.add(_method(entry.name, entry.load()))
            except Exception as error:  # whatever another package raises: the other methods still work
                package = f" of {entry.dist.name}" if entry.dist else ""
                failures.append(f"the saliency method {entry.name!r}{package} is left out: {entry.value}: {error}")
        for failure in failures:
            warnings.warn(failure, RuntimeWarning, stacklevel=4)


_registry = _Registry()


def _method(name: str, value: Method | Callable[..., Tensor]) -> Method:
    if isinstance(value, Method):
        return replace(value, name=name)
    if not callable(value):
        raise TypeError(f"{name!r} must be a function (model, x, target=None, **options), not {type(value).__name__}")
    return Method(name, value)


def register(
    name: str,
    function: Callable[..., Tensor],
    *,
    slow: bool = False,
    title: str = "",
    signed: bool = False,
    ranges: Mapping[str, Range] | None = None,
) -> None:
    """Make a method known under a name, to `get` and to everything that takes methods by name.

    Args:
        name: one that is not taken.
        function: ``(model, x, target=None, **options)``, giving (N, H, W) for images (N, C, H, W).
        slow: whether it takes much longer than a few passes through the model, see :class:`Method`.
        title: what it is called on pages; by default as its name.
        signed: whether values below zero speak against the class, as with Integrated Gradients.
        ranges: options that can be set in the explorer, with their smallest and largest values, see :class:`Method`.

    Example:
        >>> def brightness(model, x, target=None, *, colour=0):
        ...     return x[:, colour]
        >>> with explain.local_registry():  # so that the example leaves no trace
        ...     explain.register("brightness", brightness)
        ...     explain.options("brightness")
        ['colour']
    """
    method = _method(name, function)
    given = replace(
        method,
        slow=method.slow or slow,
        title=title or method.title,
        signed=method.signed or signed,
        ranges=method.ranges if ranges is None else ranges,
    )
    _registry.add(given)


def get(name: str) -> Method:
    """The method called ``name``.

    Example:
        >>> explain.get("ig").function is explain.integrated_gradients
        True
        >>> explain.get("igg")
        Traceback (most recent call last):
        ValueError: no method is called 'igg'; there are ig
    """
    methods = _registry.methods()
    if name not in methods:
        near = difflib.get_close_matches(name, methods, n=2)
        raise ValueError(f"no method is called {name!r}; there are {', '.join(near or methods)}")
    return methods[name]


def options(name: str) -> list[str]:
    """The keywords of a method beside model, x and target.

    Example:
        >>> explain.options("sat")
        ['layer', 'k', 'value', 'threshold', 'rule']
    """
    return list(get(name).options)


def names() -> list[str]:
    """All methods: the package's own first, then the others as they came.

    Example:
        >>> explain.names()[:6]
        ['cam', 'guided-ig', 'ig', 'rise', 'sat', 'xrai']
    """
    return list(_registry.methods())


@contextmanager
def local_registry() -> Iterator[None]:
    """Inside, a fresh registry with the package's own methods; entry points are looked up again. Afterwards the registry
    before is back. For tests of methods.

    Example:
        >>> with explain.local_registry():
        ...     explain.register("mine", explain.cam)
        ...     "mine" in explain.names()
        True
        >>> "mine" in explain.names()
        False
    """
    global _registry
    before, _registry = _registry, _Registry()
    try:
        yield
    finally:
        _registry = before
