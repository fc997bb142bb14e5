"""Edits of channels, what the network says of them, and the channels' order: against plain passes with a hook."""

import numpy as np
import pytest
import torch

from bort import invert
from bort.app import Explorer
from bort.app._edits import ChannelEdits
from bort.pictures import scale_of, signal
from tests.app.test_server import pixels

HERE = {"run": "plain", "image": "test-0", "layer": "conv4"}


def said(explorer, factors, others=1.0, run="plain", image="test-0", layer="conv4"):
    """The probabilities if the channels of the layer are scaled: a plain pass in which a hook scales what comes out of the
    layer. The networks' ReLU behind the layer lets a factor of 0 or more pass."""
    model, x = explorer.subjects[run].model, explorer.image(run, image)
    scales = torch.full((getattr(model, layer).out_channels, 1, 1), others)
    for channel, factor in factors.items():
        scales[channel] = factor
    handle = getattr(model, layer).register_forward_hook(lambda module, inputs, output: output * scales)
    try:
        with torch.no_grad():
            return model(x).softmax(dim=1)[0], model(x)[0]
    finally:
        handle.remove()


@pytest.mark.parametrize(
    ("text", "factors", "others"),
    [("1:0", {1: 0.0}, 1.0), ("1:0,3:4,2:2.5", {1: 0.0, 3: 4.0, 2: 2.5}, 1.0), ("*:0,1:1,3:2", {1: 1.0, 3: 2.0}, 0.0)],
)
def test_an_edited_map_runs_on_through_the_network(client, explorer, text, factors, others):
    answer = client.get("/api/edit", params=HERE | {"edits": text}).json()
    before, after = said(explorer, {})[0], said(explorer, factors, others)[0]
    numbers = [one["class"] for one in answer["classes"]]
    assert [one["before"] for one in answer["classes"]] == pytest.approx(before[numbers].tolist(), abs=1e-5)
    assert [one["after"] for one in answer["classes"]] == pytest.approx(after[numbers].tolist(), abs=1e-5)
    assert set(numbers) == set(torch.maximum(before, after).topk(5).indices.tolist())
    assert numbers == sorted(numbers, key=lambda number: -before[number]), "in the order of those before"


def test_the_difference_and_how_strong_it_is(client, explorer):
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    trace = invert.Backtracker(model, "conv4").trace(x)
    maps = trace.maps.clone()
    maps[0, 1] = 0
    before, after = trace.back(trace.maps)[0], trace.back(maps)[0]
    answer = client.get("/api/edit", params=HERE | {"edits": "1:0"}).json()
    scale = scale_of(before)
    assert np.array_equal(pixels(answer["picture"]), signal(after, scale)), "on the scale of the picture before"
    assert np.array_equal(pixels(answer["difference"]), signal(after - before))
    assert answer["largest"] == pytest.approx(255 * (after - before).abs().max().item() / scale, rel=1e-4)
    assert answer["stronger"] == pytest.approx(scale / scale_of(after - before), rel=1e-4)
    nothing = client.get("/api/edit", params=HERE | {"edits": "1:1"}).json()
    assert (nothing["largest"], nothing["stronger"]) == (0, 1)
    assert pixels(nothing["difference"]).max() == 0, "no difference is black"
    assert (answer["weaker"], nothing["weaker"]) == (1, 1)
    strong = client.get("/api/edit", params=HERE | {"edits": "*:100"}).json()
    assert strong["weaker"] == pytest.approx(100, rel=1e-3)
    assert np.array_equal(pixels(strong["picture"]), signal(before, scale)), "not white all over"


@pytest.mark.parametrize("rank", ["strength", "effect"])
def test_channels_by_their_effects(client, explorer, rank):
    """Of every channel: the logit without it, by a plain pass, minus the logit."""
    clean = said(explorer, {})[1]
    target = int(clean.argmax())
    effects = {
        channel: (said(explorer, {channel: 0.0})[1] - clean)[target].item()
        for channel in range(explorer.channel_count("plain", "conv4"))
    }
    answer = client.get("/api/channels", params=HERE | {"rank": rank, "k": 256}).json()
    shown = [one["channel"] for one in answer["channels"]]
    assert sorted(shown) == sorted(effects)
    if rank == "strength":
        assert (answer["target"], answer["is_exact"]) == (None, True)
        assert all(one["effect"] is None for one in answer["channels"])
        return
    assert (answer["target"], answer["is_exact"]) == (str(target), True)
    assert [one["effect"] for one in answer["channels"]] == pytest.approx([effects[n] for n in shown], abs=1e-4)
    sizes = [abs(one["effect"]) for one in answer["channels"]]
    assert sizes == sorted(sizes, reverse=True)
    other = client.get("/api/channels", params=HERE | {"rank": rank, "target": (target + 1) % 10}).json()
    assert other["target"] == str((target + 1) % 10)
    assert other["channels"] != answer["channels"]


def test_a_layer_whose_effects_take_long_is_approximated(subjects, monkeypatch):
    """And said to be, for every image; the numbers are gradient × activation."""
    explorer = Explorer(subjects[:1], examples=2)
    monkeypatch.setattr("bort.app._inside._PATIENCE", 0.0)
    effects = explorer.inside.effects("plain", "test-0", "conv2")
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    trace = invert.Backtracker(model, "conv2", "gradient").trace(x)
    torch.testing.assert_close(effects.values, invert.approximate_effects(trace, int(model(x).argmax())))
    monkeypatch.undo()
    assert not effects.is_exact
    assert not explorer.inside.effects("plain", "test-1", "conv2").is_exact
    assert explorer.inside.effects("plain", "test-1", "conv5").is_exact


def test_edits_as_text():
    assert ChannelEdits.parse("") == ChannelEdits()
    assert not ChannelEdits.parse("3:1")
    edits = ChannelEdits.parse("*:0,12:1,3:-2")
    assert edits == ChannelEdits({12: 1.0, 3: -2.0}, 0.0)
    assert edits.words() == "12 × 1, 3 × -2, all others × 0"
    assert edits.to_dict() == {"*": 0.0, "12": 1.0, "3": -2.0}
    scaled = edits(torch.ones(2, 20, 1, 1), "conv")
    assert scaled[:, 12].eq(1).all()
    assert scaled[:, 3].eq(-2).all()
    assert scaled.sum() == 2 * (1 - 2)


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("*:x", 400, "'*:x' is not channel:factor"),
        ("*:101", 400, "must be from -100 to 100"),
        ("**:0", 400, "is not channel:factor"),
        ("9999:1", 404, "channels 0 to"),
        ("-1:1", 404, "not -1"),
    ],
)
def test_edits_that_cannot_be_meant(client, text, status, message):
    answer = client.get("/api/edit", params=HERE | {"edits": text})
    assert (answer.status_code, message in answer.json()["message"]) == (status, True)


def test_chosen_channels_of_several_runs(client):
    view = {"image": "test-0", "layer": "conv5", "channel": "0.3,1.2,0.5"}
    page = client.get("/api/export.html", params=view).text
    assert [page.count(f"<figcaption>channel {n}<") for n in (2, 3, 5)] == [1, 1, 1]
    assert page.index("channel 3<") < page.index("channel 5<") < page.index("channel 2<")
    for wrong in ("3", "0.3,", "0.3;1.2", "a.b"):
        assert client.get("/api/export.html", params=view | {"channel": wrong}).status_code == 422


def test_patterns_of_large_networks_come_in_parts(client, explorer, monkeypatch):
    assert client.get("/api/info").json()["runs"][0]["patterns"] == 64
    monkeypatch.setattr("bort.app._inside._LARGE_NETWORK", 10)
    assert client.get("/api/info").json()["runs"][0]["patterns"] == 8
    whole = client.get("/api/channels", params=HERE | {"layer": "conv5", "k": 16}).json()["channels"]
    first = client.get("/api/channels", params=HERE | {"layer": "conv5", "k": 8}).json()
    more = {"layer": "conv5", "k": 8, "start": 8, "scale": first["scale"]}
    second = client.get("/api/channels", params=HERE | more).json()
    assert [*first["channels"], *second["channels"]] == whole
    assert second["scale"] == first["scale"]
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    pattern = invert.decompose(model, x, "conv5", 9).signals[0, 8]
    assert np.array_equal(pixels(second["sheet"])[:, :28], signal(pattern, first["scale"]))
