"""The precision of bort's own matrix products, independent of what the rest of the program has chosen for its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

# torch's settings hold for the whole process. Two threads that changed them at once would each put back what the other had
# set, so only one at a time is inside. Entered again by the same thread, the lock does not wait.
_LOCK = threading.RLock()


@contextlib.contextmanager
def own_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Inside the block, float32 matrices are multiplied in TF32 on a GPU, or in full float32 if ``precision`` is "highest"
    or the product runs on a CPU. Autocast is off: it would round the Gram matrix before I is subtracted from it.

    torch's process-wide setting is changed only where it is another one, for the device that is used, and put back under a
    lock. Where it does not have to change, threads do not wait for each other.
    """
    with contextlib.ExitStack() as stack:
        if torch.amp.is_autocast_available(device.type):
            stack.enter_context(torch.autocast(device.type, enabled=False))
        backend, wanted = _setting(precision, device)
        if backend is not None:
            stack.enter_context(_LOCK)
            stack.callback(setattr, backend, "fp32_precision", _own_setting(backend))
            backend.fp32_precision = wanted
        yield


def _own_setting(backend: Any) -> str:
    """What to put back: "none" for a backend that has the setting of all backends (torch.backends.fp32_precision). That is
    what is read from it; written back, it would be its own, which later changes of the setting of all no longer reach."""
    before: str = backend.fp32_precision
    backend.fp32_precision = "none"
    return "none" if backend.fp32_precision == before else before


def _setting(precision: str, device: torch.device) -> tuple[Any, str]:
    """The backend whose setting has to change for products on the device, and to what; None if it is right as it is."""
    if device.type not in ("cuda", "cpu"):
        return None, ""
    backend: Any = torch.backends.cuda.matmul if device.type == "cuda" else torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    wanted = "ieee" if precision == "highest" or device.type == "cpu" else "tf32"
    is_right = backend.fp32_precision == wanted or (
        wanted == "ieee" and backend.fp32_precision == "none"
    )  # none: not set
    return (None, "") if is_right else (backend, wanted)
