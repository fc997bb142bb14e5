"""What is said of a channel, against plain loops over the images; its address, and its export."""

import io
import json
import zipfile

import numpy as np
import pytest
import torch

from bort import invert
from bort.app._atlas_store import Atlas
from bort.app._channel import ChannelFacts, dead, most_alike
from bort.app._exceptions import Unknown
from bort.app._explorer import Explorer
from bort.app._export import RunExport
from bort.app._export_channel import export_channel
from bort.app._page_state import PageState
from bort.app._portrait import _box, _centre, _mean, _reach
from bort.pictures import picture, signal
from tests.app.pages import finished
from tests.app.test_atlas import make, subjects_of_tensors
from tests.app.test_server import pixels

__all__ = ["make", "subjects_of_tensors"]

HERE = {"run": "one", "layer": "conv5"}


@pytest.fixture(scope="module")
def known(subjects_of_tensors):
    """An explorer whose atlases of both runs are there."""
    explorer = Explorer(subjects_of_tensors, examples=4)
    for run in explorer.subjects:
        finished(explorer, run)
    yield explorer
    explorer.close()


def atlas_of(values, labels=None, classes=None):
    values = np.asarray(values, np.float32)
    atlas = Atlas.empty(*values.shape)
    atlas.values[:], atlas.known = values, len(values)
    atlas.labels[:] = -1 if labels is None else labels
    atlas.classes[:] = 0 if classes is None else classes
    return atlas


def test_images_and_classes_by_hand():
    values = [[1, 0], [5, 0], [3, -1], [np.nan, np.nan], [4, 0], [0, 0]]
    facts = ChannelFacts(atlas_of(values, labels=[0, 1, 0, 1, -1, 1]), "conv", 0)
    assert facts.excited() == [1, 4, 2, 0], "those that leave it at 0, or cannot be read, are not among them"
    assert (facts.active, facts.strongest, facts.by_label) == (4, 5.0, True)
    assert [(one.number, one.mean, one.images) for one in facts.by_class()] == [(1, 2.5, 2), (0, 2.0, 2)]
    none = ChannelFacts(atlas_of(values), "conv", 1)
    assert (none.excited(), none.active, none.by_label) == ([], 0, False)
    assert [one.number for one in none.by_class()] == [0], "without labels, by what the network predicts"
    first = ChannelFacts(atlas_of(values), "conv", 0, known=2)
    assert (first.excited(), first.known) == ([1, 0], 2)
    assert dead(atlas_of(values)) == [1]
    assert dead(Atlas.empty(3, 2)) == []
    with pytest.raises(Unknown, match="The layer conv has channels 0 to 1, not 2"):
        ChannelFacts(atlas_of(values), "conv", 2)


def test_the_channel_that_is_most_alike():
    """Against numpy's coefficients."""
    random = np.random.default_rng(0)
    one, other = random.random((50, 3)), random.random((50, 4))
    other[:, 2] = 3 * one[:, 1] + 0.1 * random.random(50)
    one[7], other[9] = np.nan, np.nan
    found = most_alike(atlas_of(one), 1, atlas_of(other))
    read = [n for n in range(50) if n not in (7, 9)]
    assert found == (2, pytest.approx(np.corrcoef(one[read, 1], other[read, 2])[0, 1], abs=1e-5))
    assert most_alike(atlas_of(np.ones((5, 1))), 0, atlas_of(random.random((5, 2)))) is None
    assert most_alike(Atlas.empty(5, 1), 0, Atlas.empty(5, 2)) is None
    constant = np.stack([np.ones(5), np.arange(5)], axis=1)
    assert most_alike(atlas_of(np.arange(5)[:, None]), 0, atlas_of(constant))[0] == 1


def test_neighbourhoods():
    """A pattern of 5 × 3 pixels around (6, 12) in an image of 20 × 30, and places at its border."""
    pattern = torch.zeros(1, 20, 30)
    pattern[0, 4:9, 11:14] = 1
    assert _centre(2 * 6 + 3, (7, 5, 6), torch.Size((1, 1, 20, 30))) == (10, 17)
    assert _reach(pattern, 6, 12) == 2
    pattern[0, 6, 2] = 100
    assert _reach(pattern, 6, 12) == 10, "nine tenths of its size are within it"
    assert _box(pattern, (6, 12), 2) == (10, 4, 5, 5)
    assert _box(pattern, (0, 29), 2) == (25, 0, 5, 5), "moved into the image"
    assert _box(pattern, (6, 12), None) == (0, 0, 30, 20)
    shifted = torch.zeros(2, 1, 9, 9)
    shifted[0, 0, 2, 3], shifted[1, 0, 6, 7] = 1, 3
    mean = _mean(list(shifted), [(2, 3), (6, 7)], 1)
    assert mean.tolist() == [[[0, 0, 0], [0, 2, 0], [0, 0, 0]]], "laid on one another at their centres"
    assert torch.equal(_mean(list(shifted), [(2, 3), (6, 7)], None), shifted.mean(dim=0))


def test_a_portrait_is_what_plain_passes_say(known):
    explorer, channel = known, 5
    facts = ChannelFacts(explorer.atlases("one", "conv5").atlas, "conv5", channel)
    portrait = explorer.portraits("one", "conv5", channel, facts)
    model = explorer.subjects["one"].model
    assert [place.number for place in portrait.places] == facts.excited()
    assert len(portrait.places) == 9
    changes, patterns = [], []
    for place in portrait.places:
        x = explorer.image("one", f"test-{place.number}")
        trace = invert.Backtracker(model, "conv5").trace(x)
        maps = trace.maps[0, channel]
        assert place.value == pytest.approx(maps.max().item(), abs=1e-5)
        seed = torch.zeros_like(trace.maps)
        seed[0, channel].view(-1)[maps.argmax()] = 1
        patterns.append(trace.back(seed)[0])
        left, top, width, height = (round(28 * part) for part in place.box)
        torch.testing.assert_close(place.pattern, patterns[-1][:, top : top + height, left : left + width])
        handle = model.conv5.register_forward_hook(
            lambda module, inputs, output: output * (torch.arange(output.shape[1]) != channel)[:, None, None]
        )
        with torch.no_grad():
            without = model(x)
        handle.remove()
        changes.append((without - model(x))[0].detach())
    mean = torch.stack(changes).mean(dim=0)
    assert [one["class"] for one in portrait.changes] == mean.abs().topk(6).indices.tolist()
    for one in portrait.changes:
        assert one["change"] == pytest.approx(mean[one["class"]].item(), abs=1e-4)
    with no_more(model):
        assert explorer.portraits("one", "conv5", channel, facts) is portrait


class no_more:
    """Inside, the network refuses to compute."""

    def __init__(self, model):
        self.handle = model.register_forward_pre_hook(lambda *_: pytest.fail("a new pass"))

    def __enter__(self):
        pass

    def __exit__(self, *_):
        self.handle.remove()


def test_over_http(client_of, known):
    client = client_of(known)
    status = client.get("/api/atlas", params=HERE).json()
    assert (status["state"], status["known"], status["images"]) == ("done", 40, 40)
    assert 3 in status["dead"]
    page = client.get("/api/channel", params=HERE | {"channel": 5}).json()
    atlas = known.atlases("one", "conv5").atlas
    best = int(atlas.values[:, 5].argmax())
    assert page["excited"][0] == {
        "image": f"test-{best}",
        "value": pytest.approx(atlas.values[best, 5]),
        "name": str(atlas.labels[best]),
    }
    means = {n: atlas.values[atlas.labels == n, 5].mean() for n in range(10)}
    assert {one["class"]: one["mean"] for one in page["classes"]} == pytest.approx(means, abs=1e-5)
    assert [one["mean"] for one in page["classes"]] == sorted(means.values(), reverse=True)
    dead_one = client.get("/api/channel", params=HERE | {"channel": 3}).json()
    assert (dead_one["active"], dead_one["excited"]) == (0, [])
    portrait = client.get("/api/portrait", params=HERE | {"channel": 3, "known": 40}).json()
    assert portrait == {"places": [], "mean": None, "is_whole": False, "changes": []}
    portrait = client.get("/api/portrait", params=HERE | {"channel": 5, "known": 40}).json()
    made = known.portraits("one", "conv5", 5, ChannelFacts(atlas, "conv5", 5))
    assert np.array_equal(pixels(portrait["mean"]), signal(made.mean))
    assert np.array_equal(pixels(portrait["places"][2]["pattern"]), signal(made.places[2].pattern, made.scale))
    alike = client.get("/api/alike", params=HERE | {"channel": 5, "other": "other", "other_layer": "conv5"}).json()
    best, correlation = most_alike(atlas, 5, known.atlases("other", "conv5").atlas)
    assert alike == {"known": 40, "channel": best, "correlation": pytest.approx(correlation)}


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("atlas?run=nobody&layer=conv5", 404, "There is no run 'nobody'"),
        ("atlas?run=one&layer=conv9", 404, "one has no layer 'conv9'"),
        ("channel?run=one&layer=conv5&channel=9999", 404, "not 9999"),
        ("channel?run=one&layer=conv5&channel=-1", 422, "channel: Input should be greater"),
        ("portrait?run=one&layer=conv5&channel=9999&known=4", 404, "not 9999"),
        ("alike?run=one&layer=conv5&channel=9999&other=other&other_layer=conv5", 404, "not 9999"),
    ],
)
def test_errors_are_sentences(client_of, known, path, status, message):
    answer = client_of(known).get(f"/api/{path}")
    assert (answer.status_code, message in answer.json()["message"]) == (status, True)


def test_an_atlas_that_the_server_has_let_go_of(client_of, make, monkeypatch):
    """A page that knows more than the server is told to look again, not that nothing excites the channel."""
    known = make()
    finished(known, "one")
    client, asked = client_of(known), HERE | {"channel": 5, "known": 40}
    beside = {"other": "other", "other_layer": "conv5"}
    monkeypatch.setattr("bort.app._atlas._KEPT", 1)
    for question in ("channel", "portrait", "alike"):
        finished(known, "one", "conv4")
        with known.lock:  # nothing is looked at meanwhile
            answer = client.get(f"/api/{question}", params=asked | beside)
        assert answer.status_code == 503
        assert answer.json()["message"].startswith("The test images are being looked at again for conv5 of one")
    finished(known, "one", "conv5")
    assert client.get("/api/channel", params=asked).json()["known"] == 40


def test_an_export_is_the_page(client_of, known):
    client = client_of(known)
    view = {"view": "channel", "image": "test-0", "layer": "conv5", "channel": "0.5"}
    with zipfile.ZipFile(io.BytesIO(client.get("/api/export.zip", params=view).content)) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        names = archive.namelist()
        pattern = np.load(io.BytesIO(archive.read("1-one/pattern.npy")))
        crop = pixels(archive.read("1-one/excited-1.png"))
    one, other = manifest["runs"]
    assert {"1-one/mean.png", "1-one/excited-9.png", "1-one/excited-9-pattern.npy"} <= set(names)
    assert np.array_equal(pattern, known.inside.channel("one", "test-0", "conv5", 5).numpy())
    assert (one["channel"], one["chosen"], one["known"], len(one["excited"])) == (5, "chosen", 40, 9)
    best, correlation = most_alike(known.atlases("one", "conv5").atlas, 5, known.atlases("other", "conv5").atlas)
    assert other["channel"] == best
    assert other["chosen"] == f"most like channel 5 of one, correlation {correlation:.2f}"
    made = known.portraits("one", "conv5", 5, ChannelFacts(known.atlases("one", "conv5").atlas, "conv5", 5))
    left, top, width, height = (round(28 * part) for part in made.places[0].box)
    whole = picture(known.view("one").pixels(known.image("one", one["excited"][0]["image"]))[0])
    factor = len(crop) // height
    assert np.array_equal(crop[::factor, ::factor], whole[top : top + height, left : left + width])
    page = client.get("/api/export.html", params=view).text
    assert "Channel 5 of conv5 (chosen): active on 40 of 40 test images" in page
    assert page.count("Without it the logits of these images change by") == 2
    dead_page = client.get("/api/export.html", params=view | {"channel": "0.3"}).text
    assert "dead, not one of 40 test images excites it" in dead_page
    nothing = client.get("/api/export.html", params=view | {"channel": ""}).text
    assert nothing.count("(most salient)") == 2


def test_an_export_before_anything_is_known(client_of, make):
    explorer = make()
    explorer.layers("one"), explorer.top("one")
    with explorer.lock:
        explorer.atlases("one", "conv5")
        assert explorer.atlases("one", "conv5").atlas.known == 0
        with pytest.raises(Unknown, match="have not been looked at for conv5 of one yet; try again in a moment"):
            export_channel(explorer, PageState(), PageState(layer="conv5").of_run(explorer, 0), RunExport("one"))
