"""The command line: one thin file a command."""

from __future__ import annotations

import sys
from typing import Any


def main() -> None:
    """The `bort` command."""
    try:
        import tyro
    except ImportError:
        sys.exit('The bort command needs a few more packages: pip install "bort[vision]"')
    from bort.cli.demo import demo
    from bort.cli.recipes import recipes, show

    commands: dict[str, Any] = {
        "demo": demo,
        "recipes": recipes,
        "show": tyro.conf.configure(tyro.conf.PositionalRequiredArgs)(show),
    }
    tyro.extras.subcommand_cli_from_dict(commands, prog="bort", description="Explainable networks by construction.")
