"""The explorer's answers, against the library's; and errors of every kind."""

import io
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from bort import _defaults, measure
from bort.app import Explorer
from bort.app._cache import Cache
from bort.app._edits import ChannelEdits
from bort.app._exceptions import Busy
from bort.pictures import picture
from tests.app.pages import no_passes, pixels


def test_what_there_is(client, explorer):
    info = client.get("/api/info").json()
    assert [run["name"] for run in info["runs"]] == ["plain", "<b>&$\\alpha$"]
    layers = {layer["name"]: layer for layer in info["runs"][0]["layers"]}
    assert set(layers) == {"conv1", "conv2", "conv3", "conv4", "conv5"}
    assert layers["conv5"]["height"] == layers["conv5"]["width"] == 6
    assert info["runs"][0]["top"] == "conv5"
    assert info["classes"] == list("0123456789")
    assert len(info["images"]) == 6
    assert set(info["slow"]) < set(info["methods"])


def test_every_default_of_the_page_is_the_server_s(client):
    defaults = client.get("/api/info").json()["defaults"]
    assert defaults["steps"] == _defaults.DELETION_STEPS
    assert defaults["clusters"] == _defaults.CLUSTERS
    state = defaults["state"]
    assert float(state["threshold"]) == _defaults.SAT_THRESHOLD
    assert float(state["strength"]) == _defaults.OVERLAY_STRENGTH
    assert int(state["k"]) == int(state["tracked"]) == _defaults.SALIENT_CHANNELS
    assert all(state[name] in values for name, values in defaults["choices"].items())
    assert defaults["choices"]["binary"] == ["0", "1"]
    assert defaults["bounds"]["step"] == {"min": 0, "max": _defaults.DELETION_STEPS, "is_integer": True}
    assert defaults["bounds"]["target"]["is_integer"], "of a part that may be empty too"
    for name, bounds in defaults["bounds"].items():  # outside them, the server refuses what the page does not take
        view = {"view": "audit", name: bounds["max"] + 1}
        assert client.get("/api/export.html", params=view).status_code == 422
    assert re.match(defaults["forms"]["channel"], "0.12")
    assert client.get("/api/export.html?view=audit&channel=12").status_code == 422
    here = {"run": "plain", "image": "test-0", "layer": "conv5"}
    assert len(client.get("/api/channels", params=here).json()["channels"]) == defaults["patterns"]


def test_a_picture_and_what_is_said_of_it(client, explorer):
    x = explorer.image("plain", "test-1")
    subject = explorer.subjects["plain"]
    assert np.array_equal(pixels(client.get("/api/input.png?image=test-1").content), picture(subject.view.pixels(x)[0]))
    predictions = client.get("/api/predict?run=plain&image=test-1").json()
    probabilities = subject.model(x).softmax(dim=1)[0]
    assert [one["class"] for one in predictions] == probabilities.topk(5).indices.tolist()
    assert predictions[0]["probability"] == pytest.approx(probabilities.max().item())


def test_all_images_in_a_strip(client, explorer):
    strip = pixels(client.get("/api/strip.png").content)
    names = [image["name"] for image in client.get("/api/info").json()["images"]]
    assert strip.shape == (28, 28 * len(names), 3)
    assert np.array_equal(strip[:, 28:56], pixels(client.get("/api/input.png", params={"image": names[1]}).content))


def test_uploads(client, explorer):
    buffer = io.BytesIO()
    Image.fromarray(np.full((30, 30), 200, dtype=np.uint8)).save(buffer, "PNG")
    name = client.post("/api/upload", content=buffer.getvalue()).json()["image"]
    assert client.post("/api/upload", content=buffer.getvalue()).json()["image"] == name, (
        "the same file is the same image"
    )
    assert pixels(client.get("/api/input.png", params={"image": name}).content).shape == (28, 28, 3)
    for content, status in ((b"", 400), (b"<svg/>", 400), (buffer.getvalue()[:60], 400), (b"\0" * (9 * 2**20), 413)):
        answer = client.post("/api/upload", content=content)
        assert answer.status_code == status
        assert answer.json()["message"].endswith(".")
    for level in range(20):
        buffer = io.BytesIO()
        Image.fromarray(np.full((8, 8), level, dtype=np.uint8)).save(buffer, "PNG")
        last = client.post("/api/upload", content=buffer.getvalue()).json()["image"]
    uploads = [image.name for image in explorer.gallery.list() if image.name.startswith("upload-")]
    assert len(uploads) == 16, "the oldest is dropped"
    assert last in uploads
    assert client.get("/api/predict", params={"run": "plain", "image": name}).status_code == 404


def test_the_audit_as_numbers_and_as_text(client, explorer):
    answer = client.get("/api/audit?run=plain").json()
    assert [column["title"] for column in answer["columns"]] == [column.title for column in measure.COLUMNS]
    assert all(column["meaning"] for column in answer["columns"])
    layers = list(explorer.audit("plain"))
    assert [layer["name"] for layer in answer["layers"]] == [layer.name for layer in layers]
    assert answer["layers"][0]["ratio"] == layers[0].ratio
    for shown, layer in zip(answer["layers"], layers, strict=True):
        assert shown["shown"] == {column.key: column.show(layer) for column in measure.COLUMNS}


@pytest.fixture
def busy(explorer, monkeypatch):
    """Another thread computes without end, and nobody waits longer than a moment."""
    monkeypatch.setattr(explorer.lock, "seconds", 0.05)
    held, release = threading.Event(), threading.Event()

    def hold():
        with explorer.lock:
            held.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(5)
    yield
    release.set()
    thread.join()


def test_the_cache_does_not_wait_for_calculations(explorer, busy):
    """A map that took minutes is not lost because the page's calculations take long."""
    cache = Cache(explorer.lock, size=2)
    for name in ("a", "b"):
        cache.put(name, name)
    assert cache.get("a") == "a"
    cache.put("c", "c")
    assert (cache.get("a"), cache.get("b")) == ("a", None), "a hit becomes the newest entry"
    assert explorer.image("plain", "test-0") is not None
    with pytest.raises(Busy):
        cache("d", lambda: "d")


def test_the_first_view_is_prepared(subjects):
    explorer = Explorer(subjects[:1], examples=1)
    explorer.prepare()
    with no_passes(explorer):
        assert len(explorer.inside.channels("plain", "test-0", "conv5")["channels"]) == 64
        explorer.inside.reconstruct("plain", "test-0", "conv5", None, binary=True, edits=ChannelEdits())


def test_nobody_waits_for_ever(client, busy):
    answer = client.get("/api/predict?run=plain&image=test-0")
    assert (answer.status_code, "try again" in answer.json()["message"]) == (503, True)
    assert client.get("/app.css").status_code == 200, "the page stays alive"


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("predict?run=nobody&image=test-0", 404, "There is no run 'nobody'"),
        ("predict?run=/etc/passwd&image=test-0", 404, "There is no run"),
        ("predict?run=plain&image=../../x", 404, "There is no image"),
        ("channels?run=plain&image=test-0&layer=conv9", 400, "has no layer 'conv9'"),
        ("channels?run=plain&image=test-0&layer=head&k=2", 400, "no map with places"),
        ("channels?run=plain&image=test-0&layer=conv5&k=0", 422, "k: Input should be greater"),
        ("reconstruct?run=plain&image=test-0&layer=conv1&k=256", 400, "k=256: the layer has"),
        ("export.zip?image=test-0&layer=conv5&edits=a:b", 400, "is not channel:factor"),
        ("channel.png?run=plain&image=test-0&layer=conv5&channel=9999", 404, "not 9999"),
        ("reconstruct?run=plain&image=test-0&layer=conv5&edits=a:b", 400, "is not channel:factor"),
        ("reconstruct?run=plain&image=test-0&layer=conv5&edits=1:nan", 400, "must be from -100 to 100"),
        ("saliency?run=plain&image=test-0&method=magic", 404, "no method 'magic'"),
        ("saliency?run=plain&image=test-0&method=cam&target=77", 400, "target=77: the model has 10 classes"),
        ("step?run=plain&image=test-0&method=cam&step=99", 422, "step: Input should be less"),
        ("jobs/nothing", 404, "no such calculation"),
        ("nowhere", 404, "Not Found"),
    ],
)
def test_errors_are_sentences(client, path, status, message):
    answer = client.get(f"/api/{path}")
    assert answer.status_code == status
    assert message in answer.json()["message"]
    assert "Traceback" not in answer.text


def test_the_wrong_method_says_which_is_right(client):
    answer = client.delete("/api/info")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


def test_fifty_clicks_at_once_lose_nothing(client, here):
    def click(n):
        return client.get("/api/channel.png", params=here | {"image": f"test-{n % 6}", "channel": n % 4})

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(click, range(50)))
    assert [answer.status_code for answer in answers] == [200] * 50
    for n, answer in enumerate(answers):
        assert answer.content == answers[n % 12].content
