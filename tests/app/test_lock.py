"""The end of a program: whoever computes is waited for, nobody else begins."""

import threading
import time

from bort.app._exceptions import Busy
from bort.app._lock import ComputeLock


def until(is_true):
    """Waits for what another thread does."""
    for _ in range(5000):
        if is_true():
            return
        time.sleep(0.001)
    raise AssertionError("never true")


def test_who_waits_for_it_when_the_program_ends_does_not_get_it():
    lock, got = ComputeLock(seconds=0.5), []
    begun, ending = threading.Event(), threading.Event()

    def hold():
        with lock:
            begun.set()
            assert ending.wait(5)
            until(lambda: lock._ended)

    def wait():
        try:
            with lock:
                got.append("the lock")
        except Busy:
            got.append("Busy")

    threads = [threading.Thread(target=target, daemon=True) for target in (hold, *[wait] * 20)]
    threads[0].start()
    assert begun.wait(5)
    for thread in threads[1:]:
        thread.start()
    until(lambda: lock._users == 21)  # they all wait, and were there before end()
    ending.set()
    lock.end()
    for thread in threads:
        thread.join(5)
    assert got == ["Busy"] * 20


def test_whoever_has_it_takes_it_again_and_finishes():
    lock, finished = ComputeLock(seconds=5), []
    begun, ending = threading.Event(), threading.Event()

    def work():
        with lock:
            begun.set()
            assert ending.wait(5)
            until(lambda: lock._ended)
            with lock:
                finished.append("the part inside")
            finished.append("the whole")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert begun.wait(5)
    ending.set()
    lock.end()
    assert finished == ["the part inside", "the whole"]
    thread.join(5)
