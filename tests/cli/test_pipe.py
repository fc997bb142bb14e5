"""`bort … | head`: a reader that has gone away ends a command without a word. A full disk ends it with a sentence."""

import io
import os
import subprocess
import sys

import pytest

from bort.cli._progress import progress_bar


def without_a_reader():
    """The end of a pipe to write into, whose reader has gone away."""
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("recipes",), 141),  # as shells have it: 128 + SIGPIPE
        (("show", "mnist5k-lenet-sgd"), 141),
        (("audit", "lenet"), 141),
        (("--version",), 141),
        (("demo",), 141),
        (("audit", "--help"), 0),
        (("explain", "lenet", "--method", "list"), None),
        (("train",), 2),
        (("train", "mnist5k-lenet-sgd", "--help"), 141),  # more than fits the buffer, so that it fails in between
    ],
)
@pytest.mark.usefixtures("in_a_folder_of_its_own")
def test_commands_end_quietly(bort, monkeypatch, capsys, arguments, status):
    with without_a_reader() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as stop:
            bort(*arguments)
        stream.flush()  # as Python does when it ends: nothing is left that cannot be written
    assert stop.value.code == status
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "arguments", [("recipes",), ("--version",), ("audit", "--help"), ("explain", "lenet", "--method", "list")]
)
def test_a_full_disk_is_said_in_a_sentence(bort, monkeypatch, arguments):
    with open("/dev/full", "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as stop:
            bort(*arguments)
    assert stop.value.code == "bort: cannot write to the standard output: No space left on device"


def test_a_progress_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(BrokenPipeError), progress_bar() as say:
        say("something slow", 1, 2)


def test_inside_what_turns_errors_into_a_line(bort, monkeypatch, capsys):
    with without_a_reader() as stream:
        stream.reconfigure(line_buffering=True)  # so that the first line fails, and not the end
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as stop:
            bort("explain", "lenet", "--method", "list")
    assert stop.value.code == 141
    assert capsys.readouterr().err == ""


def test_errors_are_heard(bort, monkeypatch):
    def fail():
        print("begun")
        raise ValueError("something else")

    with without_a_reader() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr("bort.cli.recipes.recipes", fail)
        with pytest.raises(ValueError, match="something else"):
            bort("recipes")


def test_a_process_of_its_own():
    """Python itself has nothing to say either."""
    command = [sys.executable, "-c", "from bort.cli import main; main()", "--version"]
    with without_a_reader() as stream:
        ended = subprocess.run(command, stdout=stream, stderr=subprocess.PIPE, check=False, text=True)
    assert (ended.returncode, ended.stderr) == (141, "")
