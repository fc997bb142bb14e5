"""The command line: one thin file a command."""

from __future__ import annotations

import sys


def main() -> None:
    """The `bort` command."""
    try:
        import tyro
    except ImportError:
        sys.exit('The bort command needs a few more packages: pip install "bort[vision]"')
    from bort.cli.demo import demo

    tyro.extras.subcommand_cli_from_dict(
        {"demo": demo}, prog="bort", description="Explainable networks by construction."
    )
