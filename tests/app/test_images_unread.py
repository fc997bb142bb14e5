"""Folders of which a file has gone or is damaged: it alone is missing, and the page says so."""

import threading

import pytest

from bort.app import Explorer
from bort.subject import of_models
from tests.subject.small import network, write_images

HOW = {"size": 8, "mean": (0.5,) * 3, "std": (1.0,) * 3}


@pytest.fixture
def make(tmp_path):
    """A function: an explorer of twelve photographs."""

    def explorer(cache=None):
        folder = write_images(tmp_path / "images", [f"{n:02}.png" for n in range(12)])
        return folder, Explorer(
            of_models({"one": network(), "other": network()}, folder, **HOW), examples=2, cache=cache
        )

    return explorer


def test_every_view_does_without_them(make, client_of, tmp_path):
    folder, explorer = make(cache=tmp_path)
    (folder / "07.png").unlink()
    (folder / "08.png").write_bytes(b"no image")
    client = client_of(explorer)
    explorer.index.start()
    assert explorer.index.wait(20)
    found = client.get("/api/find").json()
    assert (found["state"], found["message"], found["predicted"], found["matches"]) == ("done", "", 12, 10)
    for run in explorer.subjects:
        audit = client.get("/api/audit", params={"run": run}).json()
        assert (audit["n"], audit["left_out"]) == (10, 2)
        assert all(layer["ratio"] is not None for layer in audit["layers"])
    story = client.get("/api/story?view=audit").json()["text"]
    assert "over 10 images" in story
    assert client.get("/api/story?view=inside&image=test-0").status_code == 200
    order = explorer.measured("one").order.tolist()
    answer = client.get("/api/image", params={"image": f"test-{order.index(7)}"})
    assert (answer.status_code, answer.json()["message"][-7:]) == (404, "07.png.")


def test_none_of_them_is_there(make, client_of):
    folder, explorer = make()
    for file in folder.iterdir():
        file.unlink()
    audit = client_of(explorer).get("/api/audit?run=one").json()
    assert (audit["n"], audit["left_out"]) == (0, 12)
    assert explorer.measured_pairs() == []


@pytest.mark.parametrize("ask", ["audit", "image_count"])
def test_reading_keeps_nobody_from_computing(make, monkeypatch, ask):
    """A click is answered while the photographs are read that numbers are over."""
    _, explorer = make()
    reading, go = threading.Event(), threading.Event()
    images = type(explorer.measured("one").image_set)
    read = images.read

    def slowly(self, place):
        reading.set()
        assert go.wait(10)
        return read(self, place)

    monkeypatch.setattr(images, "read", slowly)
    explorer.lock.seconds = 0.5
    thread = threading.Thread(target=getattr(explorer, ask), args=["one"])
    thread.start()
    try:
        assert reading.wait(10)
        assert len(explorer.predict("one", "test-0")) == 5
    finally:
        go.set()
        thread.join(10)
