"""A view to take away is the view."""

import html
import io
import json
import re
import zipfile
from dataclasses import replace

import numpy as np

from bort._colours import colour
from bort.app._edits import ChannelEdits
from bort.app._export_audit import table
from bort.app._page_state import PageState
from bort.measure import COLUMNS, Audit, LayerAudit
from bort.pictures import scale_of


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
    assert page.count("conv1.weight") == 1, "one table for both runs"
    late = client.get("/api/export.zip", params={"view": "evidence", "image": "test-3", "method": "rise"})
    assert (late.status_code, "start it first" in late.json()["message"]) == (404, True)


def test_runs_have_their_colours_and_signals_a_legend(client, explorer):
    manifest, _ = unpacked(client)
    back, _ = explorer.inside.reconstruct("plain", "test-0", "conv5", None, binary=True, edits=ChannelEdits())
    assert manifest["runs"][0]["scales"]["reconstruction"] == scale_of(back)
    page = client.get("/api/export.html", params={"image": "test-0", "layer": "conv5"}).text
    assert f'<span class="scale">−{scale_of(back):.2g}<i></i>+{scale_of(back):.2g}</span>' in page
    for number in (0, 1):
        assert f"--run-{number}: {colour(number)};" in page
        assert f"--run-{number}: {colour(number, dark=True)};" in page
        assert f'style="background: var(--run-{number})"' in page


def test_curves_of_all_runs_on_the_same_axes(client, explorer):
    view = {"view": "evidence", "image": "test-0", "method": "cam", "score": "probability"}
    page = client.get("/api/export.html", params=view).text
    lines = re.findall(r'<polyline style="stroke: var\(--run-(\d)\)" stroke-dasharray="([^"]*)"', page)
    assert lines == [(run, dash) for run in "01" for dash in ("none", "5 3")]
    for run in explorer.subjects:
        areas = explorer.saliency.curve(run, "test-0", explorer.saliency.map(run, "test-0", "cam"))["probability"][
            "areas"
        ]
        assert "".join(f"<td>{area:.3f}</td>" for area in areas) in page
    model = explorer.subjects["plain"].model
    lowest = int(model(explorer.image("plain", "test-0")).argmin())
    page = client.get("/api/export.html", params=view | {"score": "relative", "target": lowest}).text
    assert "<td>n/a</td><td>n/a</td>" in page


def test_differences_are_exported(client, explorer):
    _, files = unpacked(client, view="evidence", method="ig", difference=1)
    assert "2-b-alpha/difference.png" in files
    assert "1-plain/difference.png" not in files, "it is the first one's less the other's"
    _, files = unpacked(client, view="transplant", other="test-1", difference=1)
    change = np.load(io.BytesIO(files["1-plain/difference.npy"]))
    made, _ = explorer.transplant("plain", "test-0", "test-1", "conv5", 64, "none")
    source = explorer.view("plain").pixels(explorer.image("plain", "test-0"))[0]
    assert np.array_equal(change, (made - source).numpy())


def test_the_audit_as_on_the_page(client, explorer):
    first, second = (list(explorer.audit(run)) for run in explorer.subjects)

    def rows(**view):
        page = client.get("/api/export.html", params={"view": "audit"} | view).text
        body = page.partition("<tbody>")[2]
        return {
            re.search("<th>(.*?)</th>", row)[1]: re.findall("<td>(.*?)</td>", row) for row in body.split("</tr>")[:-1]
        }

    shown = rows()
    assert list(shown) == [layer.name for layer in first]
    residual = COLUMNS[7]
    for one, other in zip(first, second, strict=True):
        assert [residual.show(one), residual.show(other)] == shown[one.name][10:12], "matrix, invertible, then pairs"
    ranked = sorted(second, key=lambda layer: -layer.ratio)
    assert list(rows(sort="-ratio.1")) == [layer.name for layer in ranked]
    shown = rows(difference=1)
    for one, other in zip(first, second, strict=True):
        assert shown[one.name][6] == f"{one.residual - other.residual:+.3f}"


def test_the_sentence_is_on_the_page(client):
    page = client.get("/api/export.html", params={"view": "audit"}).text
    assert html.escape(client.get("/api/story", params={"view": "audit"}).json()["text"]) in page


def test_layers_of_one_run_alone():
    layer = LayerAudit(
        "a.weight", "Linear", (2, 2), 1, True, (0.5, 1.0), (1.0, 1.0), 1.0, 0.0, 0.25, 0.0, None, None, None, None
    )
    audits = {"one": Audit((layer, replace(layer, name="only<"))), "two": Audit((replace(layer, residual=0.5),))}
    page = table(audits, PageState())
    assert "<th>only&lt; (only in one)</th>" in page
    assert page.count("<td>0.250</td>") == 2
    assert "<td></td>" in page
    assert "<td>-0.250</td>" in table(audits, PageState(difference=True))
    assert table(audits, PageState(sort="residual.9")) == page, "a run that is not there"


def test_the_class_of_a_curve_and_what_the_network_says_are_two_things(client, explorer):
    said = {run: explorer.predict(run, "test-0")[0] for run in explorer.subjects}
    chosen = next(number for number in range(10) if number not in {first["class"] for first in said.values()})
    for target, words in (({"target": chosen}, "which was chosen"), ({}, "what the network says")):
        manifest, _ = unpacked(client, view="evidence", method="cam", **target)
        view = {"view": "evidence", "image": "test-0", "method": "cam"}
        curves, *sections = client.get("/api/export.html", params=view | target).text.split("<section>")[1:]
        for section, run in zip(sections, manifest["runs"], strict=True):
            first = said[run["name"]]
            shown = chosen if target else first["class"]
            assert run["curve_class"] == {"class": shown, "name": str(shown), "is_chosen": bool(target)}
            assert f"The network says {first['name']}, {first['probability']:.1%}." in section
            assert f"of class {shown}</figcaption>" in section, "the step's score too"
            assert f"{shown}, {words}" in curves
