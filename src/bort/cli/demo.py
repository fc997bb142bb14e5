"""`bort demo`"""

from __future__ import annotations


def demo(epochs: int = 12, seed: int = 0) -> None:
    """Train LeNet on the embedded digits with SGD and with Bort-S, then show both audits side by side.

    Args:
        epochs: passes over the 4,000 training digits, for each of the two networks.
        seed: of the initial weights and the order of the digits, the same for both.
    """
    from bort._demo import run

    run(epochs, seed)
