"""The command line: one thin file a command."""

from __future__ import annotations

import io
import sys
from typing import Any, NoReturn

from bort._standard_output import redirect_to_null

__all__ = ["main"]


def main() -> None:
    """The `bort` command. Ctrl-C ends it without a traceback, with status 130 as shells have it; so does a reader of its
    output that goes away, such as `head`, with status 141. One that cannot be written, as on a full disk, ends it with a
    sentence and status 1."""
    try:
        _run()
        _flush()  # here, where a failure can be caught
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        if error.filename is not None:  # of a file, not of the output
            raise
        _exit_unwritten(error)
    except SystemExit:
        try:
            _flush()
        except BrokenPipeError:
            pass  # the command has ended by itself, with its own status
        except OSError as error:
            _exit_unwritten(error)
        raise
    finally:
        try:
            _flush()
        except OSError:
            redirect_to_null()


def _exit_unwritten(error: OSError) -> NoReturn:
    sys.exit(f"bort: cannot write to the standard output: {error.strerror}")


def _flush() -> None:
    print(end="", flush=True)


def _run() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without λ and σ shows question marks
    if sys.argv[1:] == ["--version"]:
        from bort import __version__

        print(f"bort {__version__}")
        return
    try:
        import tyro
    except ImportError:
        sys.exit('The bort command needs a few more packages: pip install "bort[vision]"')
    if sys.argv[1:2] == ["train"]:  # its options depend on the recipe, which is its first argument
        from bort.cli.train import train

        train(sys.argv[2:])
        return
    from bort.cli.audit import audit
    from bort.cli.demo import demo
    from bort.cli.evaluate import evaluate
    from bort.cli.explain import explain
    from bort.cli.recipes import recipes, show
    from bort.cli.report import figures, report
    from bort.cli.reproduce import reproduce, results
    from bort.cli.serve import serve

    def train_help() -> None:
        """Train a recipe into a run's folder, or go on with one; `bort train --help`."""

    commands: dict[str, Any] = {
        "audit": tyro.conf.configure(tyro.conf.PositionalRequiredArgs)(audit),
        "demo": demo,
        "evaluate": evaluate,
        "explain": explain,
        "figures": figures,
        "recipes": recipes,
        "report": report,
        "reproduce": reproduce,
        "results": results,
        "serve": serve,
        "show": tyro.conf.configure(tyro.conf.PositionalRequiredArgs)(show),
        "train": train_help,
    }
    tyro.extras.subcommand_cli_from_dict(
        commands, prog="bort", description="Train networks with near-orthogonal layers, and look inside any network."
    )
