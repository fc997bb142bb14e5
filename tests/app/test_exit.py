"""The end of a program: what is called, for how long it waits, and that a person can end the wait.

Each in a Python of its own, with nothing but the module: the end of this one has the tests' own explorers to close.
"""

import subprocess
import sys
from pathlib import Path

import bort.app

SCRIPT = """
import importlib.util, signal, sys, time
spec = importlib.util.spec_from_file_location("exit", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.LONGEST_END = 0.05
signal.signal(signal.SIGINT, signal.default_int_handler)

class Thing:
    def first(self):
        print("first", module.seconds_left() == 0)
    def waits(self):
        print("waits", module.seconds_left() > 0)
        time.sleep(module.seconds_left())
    def last(self):
        print("last")
    def interrupted(self):
        print("Ctrl-C")
        signal.raise_signal(signal.SIGINT)

thing, gone = Thing(), Thing()
for method in (thing.first, thing.waits, gone.last, thing.last):
    module.at_exit(method)
del gone, method
"""


def ended(script):
    path = Path(bort.app.__file__).with_name("_exit.py")
    return subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=30)


def test_all_that_still_exist_are_called_and_share_their_time():
    end = ended(SCRIPT)
    assert (end.returncode, end.stderr) == (0, "")
    assert end.stdout.split("\n") == ["last", "waits True", "first True", ""]


def test_one_that_fails_keeps_no_other_from_being_called():
    end = ended(SCRIPT + "Thing.fails = lambda self: 1 / 0\nmodule.at_exit(thing.fails)")
    assert (end.returncode, end.stdout.split("\n")) == (0, ["last", "waits True", "first True", ""])
    assert "ZeroDivisionError" in end.stderr


def test_closing_in_a_program_that_goes_on_waits_a_fixed_time():
    end = ended(SCRIPT + "print(module.seconds_left() == module.LONGEST_CLOSE)")
    assert end.stdout.startswith("True\n")


def test_ctrl_c_ends_the_wait_without_a_traceback():
    end = ended(SCRIPT + "module.at_exit(thing.interrupted)")
    assert (end.returncode, end.stdout, end.stderr) == (130, "Ctrl-C\n", "")
