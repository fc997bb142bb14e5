"""`bort demo`"""

from __future__ import annotations

from pathlib import Path


def demo(out: Path = Path("runs/demo"), epochs: int | None = None, seed: int = 0, fresh: bool = False) -> None:
    """Train a small network on embedded digits with SGD and with Bort-S, then open both side by side in a report.

    Args:
        out: the folder for the two runs and the report. What is there already is used again.
        epochs: passes over the 4,000 training digits, for each of the two; the recipe's own by default.
        seed: of the initial weights and the order of the digits, the same for both.
        fresh: begin anew.
    """
    from bort._demo import main

    main(out, epochs, seed, fresh=fresh)
