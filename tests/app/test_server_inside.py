"""What a layer has kept of an image: the explorer's answers, against the library's."""

import numpy as np
import pytest

from bort import invert
from bort.pictures import scale_of, signal
from tests.app.pages import pixels


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


def test_channels_further_down(client, here):
    every = client.get("/api/channels", params=here | {"k": 12}).json()
    later = client.get("/api/channels", params=here | {"k": 4, "start": 8}).json()
    assert later["channels"] == every["channels"][8:12]
    assert later["count"] == every["count"]
    assert client.get("/api/channels", params=here | {"start": 5000}).status_code == 404


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


def test_transplants(client, explorer):
    subject = explorer.subjects["plain"]
    made = invert.synthesize(
        subject.model, explorer.image("plain", "test-0"), explorer.image("plain", "test-1"), "conv5", 4
    )
    ask = {"run": "plain", "source": "test-0", "target": "test-1", "layer": "conv5", "k": 4}
    answer = client.get("/api/transplant", params=ask).json()
    assert answer["image"] == str(made.image_verdicts.item())
    assert answer["like_source"] == pytest.approx(made.source_similarity.item(), abs=1e-5)
