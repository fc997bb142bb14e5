"""Slow work: progress, cancelling, limits, and the same thing asked for twice."""

import threading

import pytest

from bort.app._jobs import Busy, Jobs


@pytest.fixture
def jobs():
    found = Jobs(waiting=2, keep=3, seconds=60)
    yield found
    found.close()


def hold(event):
    def work(progress):
        for done in range(10_000):
            progress(done, 10_000)
            if event.wait(0.01):
                break
        return "result"

    return work


def test_progress_and_result(jobs):
    go = threading.Event()
    job = jobs.start("a", hold(go))
    while job.total == 0:
        pass
    assert job.state == "running"
    assert jobs.start("a", hold(go)) is job, "asked for twice, done once"
    go.set()
    assert job.finished.wait(5)
    assert job.state == "done"
    assert jobs.get(job.name) is job


def test_cancelled_while_running_and_while_waiting(jobs):
    go = threading.Event()
    first, second = jobs.start("a", hold(go)), jobs.start("b", hold(go))
    while first.state != "running":
        pass
    assert jobs.cancel(second.name).state == "cancelled"
    jobs.cancel(first.name)
    assert first.finished.wait(5)
    assert first.state == "cancelled"
    go.set()
    again = jobs.start("a", hold(go))
    assert again is not first
    assert again.finished.wait(5)
    assert again.state == "done"
    assert second.state == "cancelled", "it is never started"


def test_a_full_queue_says_so(jobs):
    go = threading.Event()
    first = jobs.start("a", hold(go))
    while first.state != "running":
        pass
    waiting = [jobs.start(key, hold(go)) for key in "bc"]
    with pytest.raises(Busy, match="2 calculations are waiting already"):
        jobs.start("d", hold(go))
    go.set()
    for job in waiting:
        assert job.finished.wait(5)
        assert job.state == "done"


def test_errors_are_messages(jobs):
    def fail(progress):
        raise ValueError("k=9: the layer has 4 channels")

    job = jobs.start("a", fail)
    assert job.finished.wait(5)
    assert (job.state, job.message) == ("failed", "k=9: the layer has 4 channels")


def test_a_limit_of_time():
    jobs = Jobs(seconds=0)
    job = jobs.start("a", hold(threading.Event()))
    assert job.finished.wait(5)
    assert job.state == "failed"
    assert "longer than 0 seconds" in job.message
    jobs.close()


def test_old_results_are_forgotten(jobs):
    made = []
    for key in "abcdef":
        made.append(jobs.start(key, lambda progress: "result"))
        assert made[-1].finished.wait(5)
    assert jobs.get(made[0].name) is None
    assert jobs.get(made[-1].name) is made[-1]


def test_cancelled_ones_make_room(jobs):
    go = threading.Event()
    first = jobs.start("a", hold(go))
    while first.state != "running":
        pass
    for key in "bcdefgh":
        assert jobs.cancel(jobs.start(key, hold(go)).name).state == "cancelled"
    go.set()


def test_left_by_one_page_of_two(jobs):
    go = threading.Event()
    job = jobs.start("a", hold(go), "one")
    for _ in range(3):
        jobs.start("a", hold(go), "two")
    for _ in range(3):
        jobs.leave(job.name, "one")
    assert not job.cancelled.is_set(), "the other still waits for it, however often this one leaves"
    jobs.leave(job.name, "two")
    assert job.finished.wait(5)
    assert job.state == "cancelled"
    go.set()


def test_a_page_that_was_closed_waits_no_more(jobs, monkeypatch):
    go = threading.Event()
    job = jobs.start("a", hold(go), "closed")
    while job.state != "running":
        pass
    monkeypatch.setattr("bort.app._jobs.GONE", 0.0)
    assert job.finished.wait(5)
    assert job.state == "cancelled"
    go.set()
