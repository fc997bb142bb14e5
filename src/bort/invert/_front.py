"""The part of a model before a layer, computed once: in later passes of the same input its modules hand out what they have
computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from bort._inspect import unwrapped

_Output = Tensor | tuple[Any, ...] | list[Any]


class Front:
    """The outputs of the modules that a pass has finished before it reached the layer; of modules inside each other those of
    the outermost. Functions between the modules run again in each pass."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(unwrapped(model).modules())
        self._outputs: list[tuple[nn.Module, _Output]] = []
        self._reached = False

    def reached(self) -> None:
        """The pass that is recorded has come to the layer."""
        self._reached = True

    @contextmanager
    def recording(self) -> Iterator[None]:
        """For one pass, which calls :meth:`reached`."""
        starts: list[int] = []

        def start(module: nn.Module, inputs: Any) -> None:
            starts.append(len(self._outputs))

        def finish(module: nn.Module, inputs: Any, output: Any) -> None:
            first = starts.pop()
            if not self._reached and _is_plain(output):
                self._outputs[first:] = [(module, _copy(output))]

        with ExitStack() as hooks:
            for module in self._modules:
                hooks.callback(module.register_forward_pre_hook(start).remove)
                hooks.callback(module.register_forward_hook(finish).remove)
            yield

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Inside, these modules return their recorded outputs in the place of computing them, each as often as it has
        recorded one."""
        waiting: dict[nn.Module, deque[_Output]] = {}
        for module, output in self._outputs:
            waiting.setdefault(module, deque()).append(output)
        with ExitStack() as restored:
            for module, outputs in waiting.items():
                restored.callback(_set_forward, module, module.__dict__.get("forward"))
                _set_forward(module, _replayed(outputs, module.forward))
            yield


def _replayed(outputs: deque[_Output], forward: Any) -> Any:
    def next_output(*args: Any, **options: Any) -> Any:
        return _copy(outputs.popleft()) if outputs else forward(*args, **options)

    return next_output


def _set_forward(module: nn.Module, forward: Any) -> None:
    """None: the one of its class."""
    if forward is None:
        module.__dict__.pop("forward", None)
    else:
        module.__dict__["forward"] = forward


def _is_plain(output: Any) -> bool:
    """Tensors, alone or in a tuple or list: what can be copied without knowing more."""
    parts = output if type(output) in (tuple, list) else [output]
    return bool(parts) and all(part is None or isinstance(part, Tensor) for part in parts)


def _copy(output: _Output) -> _Output:
    """The rest of the model may change it in place."""
    if isinstance(output, Tensor):
        return output.detach().clone()
    return type(output)([None if part is None else _copy(part) for part in output])
