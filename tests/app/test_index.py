"""The index of the test set: the networks' own answers, in the background, kept in a file that may be damaged."""

import threading
import time
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import nn

from bort import invert
from bort.app import Explorer
from bort.app import _index as index_module
from bort.app import _index_store as store
from bort.app._exceptions import Unknown
from bort.report import Measured
from bort.subject import ImageSet, of_models, resolve_all
from tests.subject.small import network


@pytest.fixture
def indexed(runs, tmp_path):
    """A function: an explorer whose index is complete."""

    def make(subjects=None, cache=tmp_path, **options):
        explorer = Explorer(subjects or resolve_all(runs), examples=2, cache=cache, **options)
        explorer.index.start()
        assert explorer.index.wait(60)
        assert explorer.index.state == "done", explorer.index.message
        return explorer

    return make


@pytest.fixture
def passes(monkeypatch):
    """Counts how often the index asks a network."""
    counts = {"predict": 0, "correlate": 0}
    for name in counts:
        original = getattr(index_module.Index, f"_{name}")

        def counted(self, run, start, x, labels, name=name, original=original):
            counts[name] += len(x)
            return original(self, run, start, x, labels)

        monkeypatch.setattr(index_module.Index, f"_{name}", counted)
    return counts


def test_it_is_what_the_networks_say(indexed, monkeypatch):
    monkeypatch.setattr(index_module, "CORRELATED", 20)
    explorer = indexed()
    assert (explorer.index.count, explorer.index.predicted, explorer.index.correlated) == (50, 50, 20)
    for run, own in explorer.index.runs.items():
        measured = explorer.measured(run)
        x, labels = measured.read(range(50))
        probabilities = measured.model(x).softmax(dim=1).detach()
        assert own.labels.tolist() == labels.tolist()
        assert own.classes.tolist() == probabilities.argmax(dim=1).tolist()
        assert np.allclose(own.probabilities, probabilities.amax(dim=1), atol=1e-5)
        assert np.allclose(own.of_label, probabilities[range(50), labels], atol=1e-5)
        back = invert.reconstruct(measured.model, x[:20], "conv5")
        assert np.allclose(own.correlations[:20], invert.correlation(back, x[:20]), atol=1e-4)
        assert np.isnan(own.correlations[20:]).all()


def test_the_images_are_those_of_the_report(indexed):
    explorer = indexed()
    report = Measured(explorer.subjects["plain"]).images(64)
    assert len(report) == 50
    for number in (0, 7, 49):
        assert torch.equal(explorer.image("plain", f"test-{number}"), report[number : number + 1])


def test_it_is_kept_and_read_again(indexed, runs, tmp_path, passes):
    first = indexed()
    assert passes == {"predict": 100, "correlate": 100}
    again = indexed()
    assert passes == {"predict": 100 + 2 * 8, "correlate": 100}, "only the first few are computed again, to compare"
    for run, own in first.index.runs.items():
        for field in fields(own):
            left, right = (getattr(each.index.runs[run], field.name) for each in (first, again))
            assert np.array_equal(left, right, equal_nan=field.name not in ("labels", "classes"))
    assert len(list(tmp_path.glob("index-*.npz"))) == 2, "one a run"
    indexed(resolve_all(runs[:1]))
    assert passes["correlate"] == 100, "each run's by itself: another beside it does not matter"


@pytest.mark.parametrize("damage", ["cut", "noise", "empty", "pickle", "other", "shape"])
def test_damaged_files_are_made_anew(indexed, tmp_path, passes, damage):
    first = indexed()
    for file in tmp_path.glob("index-*.npz"):
        content = file.read_bytes()
        broken = {
            "cut": lambda content=content: content[: len(content) // 2],
            "noise": lambda content=content: content[:300] + b"\xff" * 200 + content[500:],
            "empty": lambda: b"",
            "other": lambda: b"hello",
        }
        if damage == "pickle":
            np.savez(file, **{field.name: np.array([{}], dtype=object) for field in fields(store.RunIndex)})
        elif damage == "shape":
            store.write(file, store.RunIndex.empty(7))
        else:
            file.write_bytes(broken[damage]())
    before = dict(passes)
    again = indexed()
    assert passes["correlate"] == before["correlate"] + 100
    for run in first.index.runs:
        assert np.array_equal(first.index.runs[run].classes, again.index.runs[run].classes)
    assert store.read(next(tmp_path.glob("index-*.npz")), 50) is not None, "and is whole again"


def test_other_weights_and_other_code(indexed, runs, passes):
    indexed()
    subjects = resolve_all(runs)
    with torch.no_grad():
        subjects[0].model.head.weight.mul_(-1)
    indexed(subjects)
    assert passes["correlate"] == 150, "the changed network's, not the other's"

    class Reversed(type(subjects[1].model)):
        def forward(self, x):
            return -super().forward(x)

    Reversed.__name__ = type(subjects[1].model).__name__  # the same to look at, with the same weights
    subjects = resolve_all(runs)
    subjects[1].model.__class__ = Reversed
    explorer = indexed(subjects)
    assert passes["correlate"] == 200
    x, _ = explorer.measured(subjects[1].name).read(range(50))
    assert explorer.index.runs[subjects[1].name].classes.tolist() == subjects[1].model(x).argmax(dim=1).tolist()


def test_without_a_folder_nothing_is_written(indexed, tmp_path):
    indexed(cache=None)
    assert list(tmp_path.iterdir()) == []
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    indexed(cache=blocked / "inside")


def test_old_files_are_removed(tmp_path, monkeypatch):
    """Also one that a killed process has left half written."""
    (tmp_path / "index-0.12-34.writing").write_bytes(bytes(50))
    time.sleep(0.01)
    for number in range(6):
        store.write(tmp_path / f"index-{number}.npz", store.RunIndex.empty(4))
        monkeypatch.setattr(store, "_MOST_BYTES", 3 * (tmp_path / f"index-{number}.npz").stat().st_size)
        time.sleep(0.01)  # files have times
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"index-{number}.npz" for number in (3, 4, 5)]


def test_pages_come_first(explorer):
    """While a page has the lock, or waits for it, the index does nothing."""
    index = index_module.Index(explorer)
    with explorer.lock:
        index.start()
        assert not index.wait(0.3)
        assert index.predicted == 0
        assert explorer.predict("plain", "test-0")
    assert index.wait(60)
    assert (index.state, index.predicted) == ("done", 50)


def test_waiting_pages_go_before_the_next_batch(explorer):
    held, order = threading.Event(), []

    def page():
        with explorer.lock:
            order.append("page")

    def background():
        with explorer.lock:
            held.set()
            while explorer.lock._users < 2:  # until the page waits
                time.sleep(0.001)
        explorer.lock.give_way(lambda: False)
        order.append("background")

    threads = [threading.Thread(target=work) for work in (background, page)]
    threads[0].start()
    assert held.wait(5)
    threads[1].start()
    for thread in threads:
        thread.join(5)
    assert order == ["page", "background"]


def test_it_is_closed_behind_a_long_question(runs):
    explorer = Explorer(resolve_all(runs), examples=2)
    with explorer.lock:
        explorer.index.start()
        explorer.index.close()
        assert explorer.index.state == "closed"


class Photographs(ImageSet):
    """Of twelve images two cannot be read."""

    labels = torch.arange(12) % 5

    def read(self, place):
        if place in (3, 8):
            raise ValueError(f"{place}.png is not a readable image")
        return torch.full((1, 3, 8, 8), place / 12), place % 5


def test_images_that_cannot_be_read_are_left_out(indexed, client_of):
    (subject,) = of_models(network(), torch.rand(1, 3, 8, 8))
    explorer = indexed([replace(subject, examples=Photographs())])
    client = client_of(explorer)
    order = explorer.measured("model").order.tolist()
    gone = {f"test-{order.index(place)}" for place in (3, 8)}
    found = client.get("/api/find").json()
    assert {image["name"] for image in found["images"]} == {f"test-{n}" for n in range(12)} - gone
    assert found["matches"] == 10
    answer = client.get("/api/image", params={"image": next(iter(gone))})
    assert (answer.status_code, "cannot be read" in answer.json()["message"]) == (404, True)


def test_a_failure_is_a_message_and_can_be_tried_again(runs, monkeypatch):
    explorer = Explorer(resolve_all(runs), examples=1)
    original = index_module.Index._predict

    def fail(self, *arguments):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(index_module.Index, "_predict", fail)
    explorer.index.start()
    assert explorer.index.wait(60)
    assert (explorer.index.state, explorer.index.message) == ("failed", "out of memory")
    monkeypatch.setattr(index_module.Index, "_predict", original)
    explorer.index.start()
    assert explorer.index.state == "failed"
    explorer.index.start(again=True)
    assert explorer.index.wait(60)
    assert (explorer.index.state, explorer.index.predicted) == ("done", 50)


def test_it_ends_with_the_explorer(runs, tmp_path, monkeypatch):
    explorer, begun = Explorer(resolve_all(runs), examples=1, cache=tmp_path), threading.Event()
    original = index_module.Index._predict

    def slow(self, *arguments):
        begun.set()
        time.sleep(0.05)
        return original(self, *arguments)

    monkeypatch.setattr(index_module.Index, "_predict", slow)
    explorer.index.start()
    assert begun.wait(20)
    explorer.close()
    assert explorer.index.state == "closed"
    done = explorer.index.predicted
    assert done < 50
    monkeypatch.setattr(index_module.Index, "_predict", original)
    again = Explorer(resolve_all(runs), examples=1, cache=tmp_path)
    again.index.start()
    assert again.index.wait(60)
    assert (again.index.state, again.index.predicted) == ("done", 50), "the next time it goes on"


def test_a_network_without_a_map_has_no_correlations(indexed):
    flat = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    (subject,) = of_models(flat, torch.rand(6, 3, 8, 8), mean=(0.5,) * 3, std=(0.5,) * 3)
    explorer = indexed([subject])
    assert "has no layer with a feature map" in explorer.index.no_correlations
    assert explorer.index.predicted == 6


def test_several_classes_an_image(indexed):
    (subject,) = of_models(network(), torch.rand(6, 3, 8, 8), mean=(0.5,) * 3, std=(0.5,) * 3, multi_label=True)
    own = indexed([subject]).index.runs["model"]
    x, _ = subject.test_images(6)
    highest = subject.model(x).sigmoid().amax(dim=1)
    assert sorted(own.probabilities.tolist()) == pytest.approx(sorted(highest.tolist()), abs=1e-5)
    assert np.isnan(own.of_label).all()


def test_no_images(indexed):
    (subject,) = of_models(network(), size=8, mean=(0.5,) * 3, std=(0.5,) * 3)
    explorer = indexed([subject])
    assert (explorer.index.count, explorer.index.predicted) == (0, 0)


def test_a_bound_for_large_test_sets(monkeypatch):
    monkeypatch.setattr("bort.app._test_images.MOST", 30)
    (subject,) = of_models(network(), torch.rand(100, 3, 8, 8), mean=(0.5,) * 3, std=(0.5,) * 3)
    explorer = Explorer([subject], examples=2)
    assert explorer.index.count == 30
    assert explorer.image("model", "test-29").shape == (1, 3, 8, 8)
    with pytest.raises(Unknown, match="there are test-0 to test-29"):
        explorer.image("model", "test-30")


def test_outputs_without_numbers_are_no_class(client_of):
    """NaN is not class 0."""
    model = network()
    model[-1].weight.data[2] = torch.nan
    (subject,) = of_models(model, torch.rand(6, 3, 8, 8), labels=[0] * 6, mean=(0.5,) * 3, std=(0.5,) * 3)
    explorer, words = Explorer([subject], examples=1), "the outputs of model have NaN or Inf for 1 of 1 images"
    explorer.index.start()
    assert explorer.index.wait(20)
    assert (explorer.index.state, explorer.index.message.startswith(words)) == ("failed", True)
    answer = client_of(explorer).get("/api/predict", params={"run": "model", "image": "test-0"})
    assert (answer.status_code, answer.json()["message"].startswith(words)) == (400, True)


def test_names_of_classes_may_be_long(indexed, client_of):
    long = "a very long name " * 50
    (subject,) = of_models(network(), torch.rand(6, 3, 8, 8), labels=[0] * 6, classes=[long, *"bcde"])
    answer = client_of(indexed([subject])).get("/api/find", params={"label": long})
    assert (answer.status_code, answer.json()["matches"]) == (200, 6)
