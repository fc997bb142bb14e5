"""Make timm know the Bort optimizers by name: ``create_optimizer_v2(model, opt="borts", constraint=0.1)``.

timm has no plug-in mechanism, and importing it here would cost a user of `bort.optim` seconds. So the optimizers are
registered at once if timm has been imported already, and otherwise by an import hook, right after ``import timm.optim``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_TARGET = "timm.optim"


def register_when_imported() -> None:
    if sys.modules.get(_TARGET) is not None:
        _register(sys.modules[_TARGET])
    elif not any(isinstance(finder, _ImportHook) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ImportHook())


class _ImportHook(MetaPathFinder):
    """An import hook: finds ``timm.optim`` with the ordinary finders and wraps its loader, to register after it has run."""

    _is_searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _TARGET or self._is_searching:
            return None
        self._is_searching = True  # find_spec below asks this finder again, which then passes
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisterAfter(spec.loader, self)
        return spec


class _RegisterAfter(Loader):
    """Runs the module's own loader, then registers the optimizers and removes the hook."""

    def __init__(self, loader: Loader, hook: _ImportHook) -> None:
        self._loader = loader
        self._hook = hook

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if self._hook in sys.meta_path:
            sys.meta_path.remove(self._hook)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        _register(module)


def _register(timm_optim: ModuleType) -> None:
    registry = getattr(getattr(timm_optim, "_optim_factory", None), "default_registry", None)
    if registry is None:
        return  # timm before 1.0.12 has no registry; its users still have bort.BortS itself
    for name, base, momentum in (("BortS", "SGD", True), ("BortA", "AdamW", False), ("BortL", "LAMB", False)):
        if name.lower() not in registry.list_optimizers():
            registry.register(
                timm_optim.OptimInfo(
                    name=name.lower(),
                    opt_class=f"bort.optim.{name}",
                    description=f"{base} with the bounded orthogonal constraint (Bort)",
                    has_eps=not momentum,
                    has_momentum=momentum,
                    has_betas=not momentum,
                    defaults={"nesterov": True} if momentum else None,  # as timm's own "sgd"
                )
            )
