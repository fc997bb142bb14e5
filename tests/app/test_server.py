"""The explorer's answers, against the library's; and errors of every kind."""

import io
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from PIL import Image

from bort import _defaults, explain, invert, measure
from bort.app import Explorer
from bort.app._cache import Cache
from bort.app._calculations import Calculations
from bort.app._edits import ChannelEdits
from bort.app._exceptions import Busy
from bort.pictures import picture, scale_of, signal
from tests.app.pages import pixels


@pytest.fixture
def here(explorer):
    return {"run": "plain", "image": "test-0", "layer": "conv5"}


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


def test_channels(client, explorer, here):
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    parts = invert.decompose(model, x, "conv5", 5)
    answer = client.get("/api/channels", params=here | {"k": 5}).json()
    assert [one["channel"] for one in answer["channels"]] == parts.channels[0].tolist()
    assert [[one["row"], one["column"]] for one in answer["channels"]] == parts.places[0].tolist()
    sheet = pixels(answer["sheet"])
    assert sheet.shape == (28, 5 * 28, 3)
    assert answer["scale"] == pytest.approx(scale_of(parts.signals[0]))
    assert np.array_equal(sheet[:, 28:56], signal(parts.signals[0, 1], scale_of(parts.signals[0])))
    channel = parts.channels[0, 1].item()
    one = client.get("/api/channel.png", params=here | {"channel": channel}).content
    assert np.array_equal(pixels(one), signal(parts.signals[0, 1]))


def test_a_narrow_layer_gives_all_its_channels_if_nobody_says_how_many(client, here):
    narrow = here | {"layer": "conv1"}
    assert len(client.get("/api/channels", params=narrow).json()["channels"]) == 4
    assert len(client.get("/api/clusters", params=narrow).json()["groups"]) == 4
    pair = {"run": "plain", "source": "test-0", "target": "test-1", "layer": "conv1"}
    assert (
        client.get("/api/transplant", params=pair).json()
        == client.get("/api/transplant", params=pair | {"k": 4}).json()
    )


def test_reconstructions_and_edits(client, explorer, here):
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    whole = client.get("/api/reconstruct", params=here).json()
    assert np.array_equal(pixels(whole["picture"]), signal(invert.reconstruct(model, x, "conv5")[0]))
    few = client.get("/api/reconstruct", params=here | {"k": 3}).json()
    assert np.array_equal(pixels(few["picture"]), signal(invert.reconstruct(model, x, "conv5", 3)[0]))
    trace = invert.Backtracker(model, "conv5").trace(x)
    seed = trace.features.clone()
    seed[0, 1] = 0
    seed[0, 2] *= 2.5
    edited = client.get("/api/reconstruct", params=here | {"edits": "1:0,2:2.5"}).json()
    assert np.array_equal(pixels(edited["picture"]), signal(trace(seed)[0]))
    correlation = np.corrcoef(trace(seed).flatten(), x.flatten())[0, 1]
    assert edited["correlation"] == pytest.approx(correlation, abs=1e-5)


def test_clusters(client, here):
    answer = client.get("/api/clusters", params=here | {"k": 6, "groups": 2}).json()
    assert set(answer["groups"]) == {0, 1}
    assert pixels(answer["picture"]).shape == (28, 28, 3)


@contextmanager
def no_passes(explorer, run="plain"):
    """Inside, the run's network refuses to compute."""
    hook = explorer.subjects[run].model.register_forward_pre_hook(lambda *_: pytest.fail("a new pass"))
    yield
    hook.remove()


def test_sat_needs_no_new_pass_for_its_sliders(client, explorer, here):
    ask = {"run": "plain", "image": "test-0", "method": "sat"}
    client.get("/api/saliency", params=ask)
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    expected = explorer.saliency.overlay("plain", "test-0", explain.sat(model, x, k=3, threshold=0.4)[0])
    with no_passes(explorer):
        answer = client.get("/api/saliency", params=ask | {"k": 3, "threshold": 0.4}).json()
    assert np.array_equal(pixels(answer["picture"]), expected)


def test_curves_and_steps(client, explorer):
    ask = {"run": "plain", "image": "test-0", "method": "cam"}
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    expected = measure.all_scores(model, x, explain.cam(model, x))
    curve = client.get("/api/curve", params=ask).json()
    assert curve["relative"]["deletion"] == pytest.approx(expected["relative"].deletion_curves[0].tolist(), rel=1e-4)
    for which in ("deletion", "insertion"):
        for step in (0, 9, 28):
            at = client.get("/api/step", params=ask | {"step": step, "which": which}).json()
            part = pixels(at["picture"]) == pixels(client.get("/api/input.png?image=test-0").content)
            kept = step / 28 if which == "insertion" else 1 - step / 28
            assert part.all(axis=2).mean() >= kept - 1e-3, "what is not taken away is the image's"
            if kept == 0:
                assert pixels(at["picture"]).std() == 0, "and what is taken away is gone"
            assert curve["probability"][which][step] == pytest.approx(
                getattr(expected["probability"], f"{which}_curves")[0][step].item(), abs=1e-5
            )


def test_a_curve_without_a_relative_score(client, explorer):
    """A class with a negative logit: null, which JSON has, and not nan."""
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    ask = {"run": "plain", "image": "test-0", "method": "cam", "target": int(model(x).argmin())}
    assert model(x).min() < 0
    curve = client.get("/api/curve", params=ask).json()
    assert curve["relative"] == {"deletion": [None] * 29, "insertion": [None] * 29, "areas": [None, None]}
    assert None not in curve["logit"]["areas"]


def test_transplants(client, explorer):
    subject = explorer.subjects["plain"]
    made = invert.synthesize(
        subject.model, explorer.image("plain", "test-0"), explorer.image("plain", "test-1"), "conv5", 4
    )
    ask = {"run": "plain", "source": "test-0", "target": "test-1", "layer": "conv5", "k": 4}
    answer = client.get("/api/transplant", params=ask).json()
    assert answer["image"] == str(made.image_verdicts.item())
    assert answer["like_source"] == pytest.approx(made.source_similarity.item(), abs=1e-5)


def test_the_audit_as_numbers_and_as_text(client, explorer):
    answer = client.get("/api/audit?run=plain").json()
    assert [column["title"] for column in answer["columns"]] == [column.title for column in measure.COLUMNS]
    assert all(column["meaning"] for column in answer["columns"])
    layers = list(explorer.audit("plain"))
    assert [layer["name"] for layer in answer["layers"]] == [layer.name for layer in layers]
    assert answer["layers"][0]["ratio"] == layers[0].ratio
    for shown, layer in zip(answer["layers"], layers, strict=True):
        assert shown["shown"] == {column.key: column.show(layer) for column in measure.COLUMNS}


def test_slow_methods_go_through_the_queue(client, explorer):
    ask = {"run": "plain", "image": "test-0", "method": "rise"}
    early = client.get("/api/saliency", params=ask)
    assert early.status_code == 404
    assert "start it first" in early.json()["message"]
    job = client.post("/api/jobs", params=ask).json()
    while job["state"] in ("waiting", "running"):
        job = client.get(f"/api/jobs/{job['job']}").json()
    assert job["state"] == "done"
    assert job["done"] == job["total"]
    expected = explain.rise(explorer.subjects["plain"].model, explorer.image("plain", "test-0"))[0]
    torch.testing.assert_close(explorer.saliency.map("plain", "test-0", "rise"), expected)
    assert client.get("/api/saliency", params=ask).status_code == 200


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


def test_a_map_that_was_computed_stays(client, explorer, here):
    ask = {"run": "plain", "image": "test-4", "method": "guided-ig"}
    job = client.post("/api/jobs", params=ask).json()
    while job["state"] in ("waiting", "running"):
        job = client.get(f"/api/jobs/{job['job']}").json()
    for n in range(6):
        for layer in ("conv1", "conv2", "conv3", "conv4", "conv5"):
            for run in explorer.subjects:
                client.get("/api/channel.png", params={"run": run, "image": f"test-{n}", "layer": layer, "channel": 0})
                client.get("/api/saliency", params={"run": run, "image": f"test-{n}", "method": "ig", "target": n})
    assert client.post("/api/jobs", params=ask).json()["state"] == "done"
    assert client.get("/api/saliency", params=ask).status_code == 200


def test_channels_further_down(client, here):
    every = client.get("/api/channels", params=here | {"k": 12}).json()
    later = client.get("/api/channels", params=here | {"k": 4, "start": 8}).json()
    assert later["channels"] == every["channels"][8:12]
    assert later["count"] == every["count"]
    assert client.get("/api/channels", params=here | {"start": 5000}).status_code == 404


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
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


def test_fifty_clicks_at_once_lose_nothing(client, here):
    def click(n):
        return client.get("/api/channel.png", params=here | {"image": f"test-{n % 6}", "channel": n % 4})

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(click, range(50)))
    assert [answer.status_code for answer in answers] == [200] * 50
    for n, answer in enumerate(answers):
        assert answer.content == answers[n % 12].content


def test_too_many_calculations(explorer, client_of):
    client = client_of(explorer, calculations=Calculations(waiting=1))
    requests = ({"run": "plain", "image": f"test-{n}", "method": "xrai"} for n in range(6))
    answers = [client.post("/api/jobs", params=request) for request in requests]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert refused
    assert "waiting already" in refused[0].json()["message"]
    for answer in answers:
        if answer.status_code == 200:
            client.delete(f"/api/jobs/{answer.json()['job']}")
