"""Slow calculations: progress, cancelling, limits, and the same one asked for twice."""

import threading

import pytest

from bort.app._calculations import Calculations
from bort.app._exceptions import Busy


@pytest.fixture
def queue():
    calculations = Calculations(waiting=2, keep=3, seconds=60)
    yield calculations
    calculations.close()


def hold(event):
    def work(progress):
        for done in range(10_000):
            progress(done, 10_000)
            if event.wait(0.01):
                break
        return "result"

    return work


def test_progress_and_result(queue):
    go = threading.Event()
    calculation = queue.start("a", hold(go))
    while calculation.total == 0:
        pass
    assert calculation.state == "running"
    assert queue.start("a", hold(go)) is calculation, "asked for twice, done once"
    go.set()
    assert calculation.finished.wait(5)
    assert calculation.state == "done"
    assert queue.get(calculation.name) is calculation


def test_cancelled_while_running_and_while_waiting(queue):
    go = threading.Event()
    first, second = queue.start("a", hold(go)), queue.start("b", hold(go))
    while first.state != "running":
        pass
    assert queue.leave(second.name).state == "cancelled"
    queue.leave(first.name)
    assert first.finished.wait(5)
    assert first.state == "cancelled"
    go.set()
    again = queue.start("a", hold(go))
    assert again is not first
    assert again.finished.wait(5)
    assert again.state == "done"
    assert second.state == "cancelled", "it is never started"


def test_a_full_queue_says_so(queue):
    go = threading.Event()
    first = queue.start("a", hold(go))
    while first.state != "running":
        pass
    waiting = [queue.start(key, hold(go)) for key in "bc"]
    with pytest.raises(Busy, match="2 calculations are waiting already"):
        queue.start("d", hold(go))
    go.set()
    for calculation in waiting:
        assert calculation.finished.wait(5)
        assert calculation.state == "done"


def test_errors_are_messages(queue):
    def fail(progress):
        raise ValueError("k=9: the layer has 4 channels")

    calculation = queue.start("a", fail)
    assert calculation.finished.wait(5)
    assert (calculation.state, calculation.message) == ("failed", "k=9: the layer has 4 channels")


def test_a_limit_of_time():
    queue = Calculations(seconds=0)
    calculation = queue.start("a", hold(threading.Event()))
    assert calculation.finished.wait(5)
    assert calculation.state == "failed"
    assert "longer than 0 seconds" in calculation.message
    queue.close()


def test_old_results_are_forgotten(queue):
    made = []
    for key in "abcdef":
        made.append(queue.start(key, lambda progress: "result"))
        assert made[-1].finished.wait(5)
    assert queue.get(made[0].name) is None
    assert queue.get(made[-1].name) is made[-1]


def test_cancelled_ones_make_room(queue):
    go = threading.Event()
    first = queue.start("a", hold(go))
    while first.state != "running":
        pass
    for key in "bcdefgh":
        assert queue.leave(queue.start(key, hold(go)).name).state == "cancelled"
    go.set()


def test_left_by_one_page_of_two(queue):
    go = threading.Event()
    calculation = queue.start("a", hold(go), "one")
    for _ in range(3):
        queue.start("a", hold(go), "two")
    for _ in range(3):
        queue.leave(calculation.name, "one")
    assert not calculation.cancelled.is_set(), "the other still waits for it, however often this one leaves"
    queue.leave(calculation.name, "two")
    assert calculation.finished.wait(5)
    assert calculation.state == "cancelled"
    go.set()


def test_a_page_that_has_left_and_still_asks_does_not_wait(queue):
    """Its question of how far it is may be on its way while it leaves."""
    go = threading.Event()
    calculation = queue.start("a", hold(go), "one")
    queue.start("a", hold(go), "two")
    queue.leave(calculation.name, "one")
    assert queue.get(calculation.name, "one") is calculation
    queue.leave(calculation.name, "two")
    assert calculation.finished.wait(5)
    assert calculation.state == "cancelled"
    go.set()


def test_a_page_that_was_closed_waits_no_more():
    queue, go = Calculations(closed_after=0.05), threading.Event()
    calculation = queue.start("a", hold(go), "closed")
    assert calculation.finished.wait(5)
    assert calculation.state == "cancelled"
    go.set()
    queue.close()
