"""The end of a program: whoever computes is waited for, nobody else begins."""

import threading
import time

from bort.app._exceptions import Busy
from bort.app._lock import ComputeLock


def test_the_end_comes_before_a_thread_that_takes_it_again_and_again():
    lock, taken = ComputeLock(seconds=0.2), []
    begun = threading.Event()

    def work():
        try:
            while True:
                with lock:
                    taken.append(None)
                    begun.set()
                    time.sleep(0.001)
        except Busy:
            pass

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert begun.wait(5)
    lock.end()
    seen = len(taken)
    thread.join(5)
    assert not thread.is_alive()
    assert len(taken) == seen


def test_whoever_has_it_takes_it_again_and_finishes():
    lock, finished = ComputeLock(seconds=5), []
    begun, ending = threading.Event(), threading.Event()

    def work():
        with lock:
            begun.set()
            assert ending.wait(5)
            time.sleep(0.05)  # the other thread is in end() by now
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
