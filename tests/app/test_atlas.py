"""Atlases: against a loop over the images; their files, damaged ones included; cancelling, and pages that come first."""

import json
import threading
import time
from urllib.parse import urlencode

import numpy as np
import pytest
import torch

import bort
from bort import invert, nets
from bort.app import Explorer
from bort.app import _atlas_store as store
from bort.app._atlas import Atlases
from bort.app._atlas_store import Atlas
from bort.app._lock import ComputeLock
from bort.subject import of_models
from tests.app.pages import finished
from tests.app.test_explore import get

IMAGES = 40


@pytest.fixture(scope="module")
def subjects_of_tensors():
    torch.manual_seed(0)
    models = {name: nets.create("acnn-small", width=0.02) for name in ("one", "other")}
    with torch.no_grad():
        models["one"].conv5.bias[3] = -1e4  # a dead channel
    return of_models(models, torch.rand(IMAGES, 1, 28, 28), labels=[n % 10 for n in range(IMAGES)])


@pytest.fixture
def make(subjects_of_tensors):
    """A function: an explorer of these networks, closed at the end."""
    explorers = []

    def explorer_with(cache=None):
        explorers.append(Explorer(subjects_of_tensors, examples=4, cache=cache))
        return explorers[-1]

    yield explorer_with
    for explorer in explorers:
        explorer.close()


def files(folder):
    return sorted(folder.glob("atlas-*.npz"))


@pytest.fixture
def passes(subjects_of_tensors):
    """How many images the first network has seen since."""
    counted = []
    model = subjects_of_tensors[0].model
    handle = model.register_forward_pre_hook(lambda module, inputs: counted.append(len(inputs[0])))
    yield counted
    handle.remove()


def test_against_a_loop_over_the_images(make):
    explorer = make()
    job = finished(explorer)
    assert (job.state, job.message, job.atlas.known) == ("done", "", IMAGES)
    model = explorer.subjects["one"].model
    for number in range(IMAGES):
        x = explorer.image("one", f"test-{number}")
        maps = invert.Backtracker(model, "conv5").features(x)[0].flatten(1)
        torch.testing.assert_close(torch.from_numpy(job.atlas.values[number]), maps.amax(dim=1))
        places = torch.from_numpy(job.atlas.places[number]).long()
        torch.testing.assert_close(maps.gather(1, places[:, None])[:, 0], maps.amax(dim=1))
        assert job.atlas.classes[number] == model(x).argmax()
    assert sorted(job.atlas.labels.tolist()) == sorted(n % 10 for n in range(IMAGES))


def test_the_next_server_reads_the_file(make, tmp_path, passes):
    first = finished(make(tmp_path)).atlas
    assert len(files(tmp_path)) == 1
    passes.clear()
    again = finished(make(tmp_path))
    assert sum(passes) < 8, "layers, and one image to compare with"
    assert np.array_equal(again.atlas.values, first.values)
    finished(make(tmp_path), layer="conv4")
    finished(make(tmp_path), run="other")
    assert len(files(tmp_path)) == 3, "each layer and network has its own"


def test_another_network_has_another_file(make, tmp_path, subjects_of_tensors):
    finished(make(tmp_path))
    weight = subjects_of_tensors[0].model.conv1.weight
    with torch.no_grad():
        weight[0, 0, 0, 0] += 0.01
    try:
        finished(make(tmp_path))
    finally:
        with torch.no_grad():
            weight[0, 0, 0, 0] -= 0.01
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-100],
        lambda content: content[:300] + bytes(64) + content[364:],
        lambda content: b"",
        lambda content: b"not an archive",
    ],
    ids=["cut off", "changed inside", "empty", "something else"],
)
def test_a_damaged_file_is_made_anew(make, tmp_path, damage):
    good = finished(make(tmp_path)).atlas
    (file,) = files(tmp_path)
    content = file.read_bytes()
    file.write_bytes(damage(content))
    again = finished(make(tmp_path))
    assert again.state == "done"
    np.testing.assert_allclose(again.atlas.values, good.values, rtol=1e-4, atol=1e-5)  # batches depend on time
    assert store.read(file, IMAGES, good.channels) is not None, "and written again"


def test_a_file_of_other_code_is_not_believed(make, tmp_path):
    """The same weights, but another result for the first image."""
    good = finished(make(tmp_path)).atlas
    (file,) = files(tmp_path)
    wrong = store.read(file, IMAGES, good.channels)
    wrong.values += 1
    store.write(file, wrong)
    np.testing.assert_allclose(finished(make(tmp_path)).atlas.values, good.values, rtol=1e-4, atol=1e-5)


def test_files_without_pickle_and_of_the_right_kind(tmp_path):
    atlas = Atlas.empty(3, 2)
    store.write(tmp_path / "atlas-a.npz", atlas)
    assert store.read(tmp_path / "atlas-a.npz", 3, 2) is not None
    assert store.read(tmp_path / "atlas-a.npz", 4, 2) is None
    np.savez(tmp_path / "atlas-b.npz", **{name: np.array([object()]) for name in vars(atlas)})
    assert store.read(tmp_path / "atlas-b.npz", 3, 2) is None
    assert not list(tmp_path.glob("*.writing"))


def test_the_oldest_files_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_MOST_BYTES", 40_000)  # room for two files
    for name in "abc":
        store.write(tmp_path / f"atlas-{name}.npz", Atlas.empty(100, 16))
        time.sleep(0.02)
    assert [file.name for file in files(tmp_path)] == ["atlas-b.npz", "atlas-c.npz"]


def test_closing_keeps_what_is_known(make, tmp_path, monkeypatch):
    """The next server goes on from there; whole files only."""
    monkeypatch.setattr("bort.app._atlas._LARGEST_BATCH", 1)
    explorer = make(tmp_path)
    monkeypatch.setattr(explorer.lock, "give_way", lambda *_: time.sleep(0.03))  # so that there is time to close it
    job = explorer.atlases("one", "conv5")
    while job.atlas.known < 3:
        time.sleep(0.01)
    explorer.close()
    assert job.state == "closed"
    assert not any(thread.name == "bort-atlases" for thread in threading.enumerate())
    known = job.atlas.known
    assert 3 <= known < IMAGES
    (file,) = files(tmp_path)
    assert store.read(file, IMAGES, job.atlas.channels).known == known
    assert finished(make(tmp_path)).atlas.known == IMAGES


def test_the_end_of_a_server_is_its_end(monkeypatch, tmp_path):
    monkeypatch.setenv("BORT_DATA", str(tmp_path))
    torch.manual_seed(0)
    with bort.explore(nets.create("lenet"), torch.rand(30, 1, 28, 28)) as page:
        (run,) = json.loads(get(page, "/api/info")[1])["runs"]
        query = urlencode({"run": run["name"], "layer": "conv2"})
        assert json.loads(get(page, f"/api/atlas?{query}")[1])["images"] == 30
        assert any(thread.name == "bort-atlases" for thread in threading.enumerate())
    assert not any(thread.name == "bort-atlases" for thread in threading.enumerate())
    assert all(file.suffix == ".npz" for file in (tmp_path / "explorer").glob("*")), "no half-written file"


def test_pages_come_first(make):
    """While somebody computes, and for a moment afterwards, it waits; and it can be closed meanwhile."""
    explorer = make()
    explorer.channel_count("one", "conv5")
    with explorer.lock:
        job = explorer.atlases("one", "conv5")
        time.sleep(0.3)
        assert job.atlas.known == 0
    for _ in range(20):
        with explorer.lock:
            time.sleep(0.01)
        time.sleep(0.01)
        assert job.atlas.known == 0
    assert finished(explorer).atlas.known == IMAGES
    with explorer.lock:
        other = explorer.atlases("one", "conv4")
        explorer.close()
    assert (other.state, other.atlas.known) == ("closed", 0)


def test_a_lock_that_is_quiet():
    lock, seen = ComputeLock(), []
    with lock:
        assert not lock.is_quiet(0)
    assert lock.is_quiet(10), "this thread itself had it last"
    other = threading.Thread(target=lambda: seen.extend([lock.is_quiet(10), lock.is_quiet(0)]))
    other.start()
    other.join()
    assert seen == [False, True]


def test_what_was_asked_for_last_goes_first(make, monkeypatch):
    explorer = make()
    explorer.channel_count("one", "conv5")
    order = []
    original = Atlases._batch
    monkeypatch.setattr(Atlases, "_batch", lambda self, job: (order.append(job.layer), original(self, job)))
    with explorer.lock:
        jobs = [explorer.atlases("one", layer) for layer in ("conv3", "conv4", "conv5")]
        time.sleep(0.2)  # the first one has begun, and waits
    while any(job.state != "done" for job in jobs):
        time.sleep(0.02)
    begun = [layer for layer, before in zip(order, [None, *order], strict=False) if layer != before]
    assert begun in (["conv3", "conv5", "conv4", "conv3"], ["conv5", "conv4", "conv3"])


def test_time_and_memory_are_bounded(make, monkeypatch):
    monkeypatch.setattr("bort.app._atlas.MOST_SECONDS", 0.0)
    job = finished(make())
    assert (job.state, job.atlas.known) == ("done", 0)
    monkeypatch.undo()
    monkeypatch.setattr("bort.app._atlas._MOST_NUMBERS", 5 * job.atlas.channels)
    assert finished(make()).atlas.images == 5


def test_an_error_is_a_message_and_can_be_tried_again(make, monkeypatch):
    explorer = make()

    def fail(*_):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(invert.Backtracker, "trace", fail)
    job = finished(explorer)
    assert (job.state, job.message) == ("failed", "out of luck")
    assert explorer.atlases("one", "conv5") is job
    monkeypatch.undo()
    explorer.atlases("one", "conv5", again=True)
    assert finished(explorer).state == "done"


def test_a_folder_that_cannot_be_written(make, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert finished(make(tmp_path / "file" / "below")).state == "done"


def test_without_images():
    subjects = of_models({"alone": nets.create("lenet")}, size=28, mean=(0.1,), std=(0.3,))
    explorer = Explorer(subjects)
    assert explorer.test_images.count == 0
    assert explorer.layers("alone") == [], "no image to find them with"
