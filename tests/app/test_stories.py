"""The numbers in the sentences: those of the image, and, over many images, those of a report."""

import math
import re
import threading
import time

import pytest
import torch

from bort import invert
from bort.app import Explorer
from bort.app._averages import Averages
from bort.app._edits import ChannelEdits
from bort.app._lock import ComputeLock
from bort.app._page_state import PageState
from bort.app._stories import Stories
from bort.report import SampleSizes, measured
from bort.subject import resolve_all


@pytest.fixture(scope="module")
def prepared(runs):
    return measured(resolve_all(runs), SampleSizes())


@pytest.fixture(scope="module")
def stories(explorer):
    told = Stories(explorer)
    told.averages = Averages(explorer.lock, longest=math.inf)  # a slow machine gives nothing up
    yield told
    told.close()


def told(stories, **state):
    """The sentence with all its numbers."""
    state = PageState(**({"image": "test-0", "other": "test-1"} | state))
    for _ in range(600):
        story = stories.tell(state)
        if not story.is_pending:
            return story.text
        time.sleep(0.05)
    pytest.fail("the numbers never came")


def numbers(text, places):
    return [float(found) for found in re.findall(rf"-?\d+\.\d{{{places}}}\b", text)]


def test_what_a_layer_keeps(stories, explorer, prepared):
    text = told(stories, view="inside")
    runs = list(explorer.subjects)
    here = {
        run: explorer.inside.reconstruct(run, "test-0", "conv5", None, binary=True, edits=ChannelEdits())[1]
        for run in runs
    }
    over = {}
    for own in prepared:
        x = own.images(64)
        over[own.name] = invert.correlation(invert.reconstruct(own.model, x, "conv5"), x).mean().item()
    assert f"over {len(prepared[0].images(64))} images" in text
    expected = [*here.values(), *over.values()]
    assert sorted(numbers(text, 2)) == pytest.approx(sorted(expected), abs=0.006)


def test_the_areas_are_those_of_a_report(stories, explorer, prepared):
    text = told(stories, view="evidence", score="probability")
    over = [own.evaluate(["sat"])["sat"].scores["probability"].means for own in prepared]
    shown = numbers(text.partition("over ")[2], 3)
    assert sorted(shown) == pytest.approx(sorted(area for both in over for area in both), abs=0.0006)
    maps = {run: explorer.saliency.map(run, "test-0", "sat") for run in explorer.subjects}
    here = [explorer.saliency.curve(run, "test-0", maps[run])["probability"]["areas"] for run in maps]
    shown = numbers(text.partition("over ")[0], 3)
    assert sorted(shown) == pytest.approx(sorted(area for both in here for area in both), abs=0.0006)


def test_a_class_of_ones_own_is_told_of_this_image_only(stories):
    assert "over" not in told(stories, view="evidence", score="logit", target=3)
    assert told(stories, view="evidence", method="rise") == "", "nothing is said of a map that is not there yet"


def test_a_relative_score_that_does_not_exist(stories, explorer):
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    text = told(stories, view="evidence", method="cam", target=int(model(x).argmin()))
    assert "too small to divide by" in text


def test_transplants_are_those_of_a_report(stories, prepared):
    text = told(stories, view="transplant", k=4)
    sources, targets = map(list, prepared[0].pairs)
    for own in prepared:
        x = own.images(64)
        made = invert.synthesize(own.model, x[sources], x[targets], "conv5", 4)
        if made.pairs:
            fools = round(made.image_success * made.pairs)
            assert f"{own.name} is fooled by {fools} of {made.pairs} pairs that it tells apart" in text


def test_the_audit_in_a_sentence(stories, explorer, prepared):
    residuals = [max(layer.residual for layer in own.audit) for own in prepared]
    ratios = [own.mean_ratio for own in prepared]
    text = told(stories, view="audit", image="")
    assert sorted(numbers(text, 2)) == pytest.approx(sorted([*residuals, *ratios]), abs=0.006)
    assert text.endswith(f"over {len(prepared[0].images(64))} images.")


def test_found_images_in_a_sentence(stories, explorer):
    explorer.index.start()
    assert explorer.index.wait(60)
    index = explorer.index.runs["plain"]
    right = int((index.classes == index.labels).sum())
    assert re.search(rf"\b{right}\b.* of {len(index.labels)} test images", told(stories, view="find", image=""))


def test_no_images_and_views_without_a_sentence(stories):
    assert told(stories, view="inside", image="").startswith("There is no image to look at yet")
    assert told(stories, view="elsewhere") == ""


def test_one_run(runs):
    stories = Stories(Explorer(resolve_all(runs[:1]), examples=2))
    assert told(stories, view="inside").startswith("plain keeps this image with correlation")
    assert told(stories, view="evidence", score="logit").startswith("plain's areas under the curves are")
    stories.close()


def test_over_http(client):
    answer = client.get("/api/story", params={"view": "audit"}).json()
    assert answer["text"].startswith(("plain", "<b>"))
    assert answer["pending"] is False
    for wrong in ({"method": "magic"}, {"image": "nothing"}, {"image": "test-0", "other": "nothing"}):
        assert client.get("/api/story", params=wrong).status_code == 404


# --- averages


def wait(numbers):
    for _ in range(400):
        if not numbers.is_open:
            return
        time.sleep(0.01)
    pytest.fail("it never ended")


def test_the_newest_question_comes_first():
    averages, order, hold = Averages(ComputeLock()), [], threading.Event()

    def compute(name):
        def of(number, part):
            if name == "old" and number == 1:
                hold.wait(5)
            order.append((name, number))
            return number

        return of

    old = averages.ask("old", compute("old"), 5)
    new = averages.ask("new", compute("new"), 3)
    hold.set()
    wait(new)
    assert new.values == [0, 1, 2]
    assert not old.is_done, "nobody asks for it any more"
    wait(averages.ask("old", compute("old"), 5))
    assert old.values == [0, 1, 2, 3, 4], "it went on where it was"
    assert [number for name, number in order if name == "old"] == [0, 1, 2, 3, 4]
    averages.close()


def test_what_fails_or_takes_too_long_is_given_up():
    averages = Averages(ComputeLock(), longest=0.0)

    def fail(number, part):
        raise RuntimeError

    def slow(number, part):
        with part():
            time.sleep(0.001)
        return number

    for compute, values in ((fail, []), (slow, [0])):
        numbers = averages.ask(compute, compute, 3)
        wait(numbers)
        assert numbers.is_given_up
        assert numbers.values == values, "the first image may be slow: much is loaded with it"
    averages.close()


def test_pages_are_not_kept_waiting():
    """Between two parts the lock is free."""
    lock = ComputeLock(seconds=2.0)
    averages, seen = Averages(lock), []

    def compute(number, part):
        with part():
            time.sleep(0.01)
        return number

    numbers = averages.ask("many", compute, 50)
    while numbers.is_open and len(seen) < 10:
        with lock:
            seen.append(len(numbers.values))
        time.sleep(0.001)
    averages.close()
    assert len(set(seen)) > 1
    assert torch.tensor(seen).diff().max() < 20


def test_it_is_closed_behind_a_long_question():
    lock, begun, left = ComputeLock(), threading.Event(), threading.Event()
    averages = Averages(lock)

    def compute(number, part):
        begun.set()
        try:
            with part():
                return number
        finally:
            left.set()

    with lock:
        averages.ask("one", compute, 1)
        assert begun.wait(5)
        averages.close()
        assert left.is_set()
