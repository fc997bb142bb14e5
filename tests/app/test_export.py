"""A view to take away is the view."""

import io
import json
import zipfile

import numpy as np

from bort.app._edits import ChannelEdits


def unpacked(client, **view):
    answer = client.get("/api/export.zip", params={"image": "test-0", "layer": "conv5"} | view)
    assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        return json.loads(archive.read("manifest.json")), {name: archive.read(name) for name in archive.namelist()}


def test_an_export_is_the_view_of_all_runs(client, explorer):
    manifest, files = unpacked(client, part="k", k=3, binary=0, channel="1.2", edits=";0:2", clusters=1)
    assert [run["name"] for run in manifest["runs"]] == list(explorer.subjects)
    folders = [run["folder"] for run in manifest["runs"]]
    assert folders == ["1-plain", "2-b-alpha"], "names that every file system takes"
    assert {name for name in files if name.startswith("2-")} == {
        f"2-b-alpha/{name}"
        for name in (
            "input.png",
            "reconstruction.png",
            "reconstruction.npy",
            "after.png",
            "after.npy",
            "difference.png",
            "difference.npy",
            "channel-2.png",
            "channel-2.npy",
            "channels.png",
            "clusters.png",
        )
    }
    assert "1-plain/channel-2.png" not in files, "the channel is the second run's"
    back = np.load(io.BytesIO(files["1-plain/reconstruction.npy"]))
    expected, like = explorer.inside.reconstruct("plain", "test-0", "conv5", 3, binary=False, edits=ChannelEdits())
    assert np.array_equal(back, expected.numpy())
    assert manifest["runs"][0]["correlation"] == like
    assert len(manifest["runs"][0]["channels"]) == 64
    assert manifest["runs"][1]["edits"] == {"0": 2.0}
    assert manifest["address"] == "?image=test-0&layer=conv5&part=k&k=3&binary=0&channel=1.2&edits=%3B0%3A2&clusters=1"
    assert {"commit", "versions", "hardware"} <= manifest.keys()


def test_exports_of_the_other_views(client, explorer):
    manifest, files = unpacked(client, view="evidence", method="cam", target=3, step=9, which="insertion", strength=0.2)
    saliency = explorer.saliency.map("plain", "test-0", "cam", 3)
    assert np.array_equal(np.load(io.BytesIO(files["1-plain/cam.npy"])), saliency.numpy())
    assert "1-plain/insertion-step-9.png" in files
    assert manifest["runs"][0]["curves"]["logit"]["areas"]
    manifest, files = unpacked(client, view="transplant", other="test-1", k=2)
    assert "2-b-alpha/made.png" in files
    assert manifest["runs"][0]["features"] == 2
    manifest, files = unpacked(client, view="audit")
    assert manifest["runs"][1]["audit"][0]["name"] == "conv1.weight"
    page = client.get("/api/export.html", params={"view": "audit"}).text
    assert page.count("conv1.weight") == 2
    late = client.get("/api/export.zip", params={"view": "evidence", "image": "test-3", "method": "rise"})
    assert (late.status_code, "start it first" in late.json()["message"]) == (404, True)
