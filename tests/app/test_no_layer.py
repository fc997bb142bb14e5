"""A network without a feature map beside one with: what needs a layer says so, everything else works."""

import numpy as np
import pytest
import torch
from torch import nn

from bort.app import Explorer
from bort.subject import of_models
from tests.app.pages import finished, open_at, until
from tests.app.test_page_inside import BUSY

SENTENCE = "flat has no layer with a feature map."
HERE = {"run": "flat", "image": "test-0"}


def explorer_of(*names, **options):
    torch.manual_seed(0)
    networks = {
        "flat": nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 4)),
        "deep": nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 4)),
    }
    images, labels = torch.rand(6, 1, 8, 8), torch.arange(6) % 4
    return Explorer(of_models({name: networks[name] for name in names}, images, labels=labels), examples=2, **options)


@pytest.fixture(scope="module")
def explorer():
    explorer = explorer_of("flat", "deep")
    yield explorer
    explorer.close()


def test_classes_without_names_are_numbers(client):
    assert client.get("/api/info").json()["classes"] == ["0", "1", "2", "3"]


def test_what_there_is(client):
    flat, deep = client.get("/api/info").json()["runs"]
    assert (flat["layers"], flat["top"]) == ([], "")
    assert deep["top"] == deep["layers"][-1]["name"] == "0"


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ("predict", 200),
        ("saliency?method=ig", 200),
        ("curve?method=ig", 200),
        ("saliency?method=sat", 400),
        ("saliency?method=cam", 400),
        ("atlas?layer=", 400),
        ("audit", 200),
        ("find", 200),
    ],
)
def test_questions(client, question, status):
    answer = client.get(f"/api/{question}{'&' if '?' in question else '?'}run=flat&image=test-0")
    assert answer.status_code == status
    if status == 400:
        assert "no layer with a feature map" in answer.json()["message"]


@pytest.mark.parametrize("view", ["inside", "channel", "transplant"])
def test_views_that_show_a_layer(client, explorer, view):
    finished(explorer, "deep", "0")
    parameters = {"view": view, "image": "test-0", "other": "test-1", "channel": "1.2"}
    assert client.get("/api/story", params=parameters).json()["text"] == ""
    page = client.get("/api/export.html", params=parameters)
    assert page.status_code == 200, page.text
    assert SENTENCE in page.text
    assert page.text.count("<img") >= 1, "those of the other network"


@pytest.mark.parametrize(("first", "other"), [("flat", "deep"), ("deep", "flat")])
def test_an_export_has_the_maps_of_the_network_that_has_some(first, other, client_of):
    explorer = explorer_of(first, other)
    page = client_of(explorer).get("/api/export.html?view=evidence&image=test-0&method=cam&difference=true")
    assert page.status_code == 200, page.text
    assert "has no layer with a feature map" in page.text
    assert "CAM" in page.text
    explorer.close()


def test_a_drawing_is_told_apart_all_the_same(client, explorer):
    canvas = explorer.drawings.canvas
    ink = bytes([255]) * (canvas["rows"] * canvas["columns"] * canvas["scale"] ** 2)
    answer = client.post("/api/draw?keep=true", content=ink).json()
    flat, deep = answer["runs"]
    assert len(flat["classes"]) == len(deep["classes"]) == 4
    assert (flat["layer"], flat["picture"], flat["correlation"]) == ("", None, None)
    assert deep["picture"]
    export = client.get("/api/export.html", params={"view": "draw", "drawing": answer["drawing"]})
    assert export.status_code == 200


def test_alone(client_of):
    explorer = explorer_of("flat")
    client = client_of(explorer)
    assert client.get("/api/info").status_code == 200
    assert "The network says" in client.get("/api/export.html?view=inside&image=test-0").text
    explorer.index.start()
    assert explorer.index.wait(20)
    assert (explorer.index.state, explorer.index.no_correlations) == ("done", SENTENCE)
    explorer.close()


@pytest.mark.parametrize("order", [("flat", "deep"), ("deep", "flat")])
def test_the_network_beside_it_has_correlations(order):
    explorer = explorer_of(*order)
    explorer.index.start()
    assert explorer.index.wait(20)
    known = {name: int((~np.isnan(run.correlations)).sum()) for name, run in explorer.index.runs.items()}
    assert known == {"flat": 0, "deep": 6}
    assert explorer.index.no_correlations == SENTENCE
    explorer.close()


def test_why_there_are_no_correlations_is_said_after_a_restart(tmp_path):
    said = []
    for _ in range(2):
        explorer = explorer_of("flat", cache=tmp_path)
        explorer.index.start()
        assert explorer.index.wait(20)
        said.append(explorer.index.no_correlations)
        explorer.close()
    assert said == [SENTENCE, SENTENCE]


WORDS = {
    "inside": "This network has no layer",
    "channel": "This network has no layer",
    "transplant": "This network has no layer",
    "evidence&method=ig&target=3": "Integrated Gradients",
    "evidence&method=sat": "no layer with a feature map",
    "draw": "Draw",
    "find": "6 of 6",
    "audit": "1.weight",
}


@pytest.mark.slow
def test_the_page(tab, server):

    for view, words in WORDS.items():
        open_at(tab, server, f"?view={view}")
        until(tab, BUSY)
        until(tab, "words => document.getElementById('view').innerText.includes(words)", words)
        assert tab.locator("#message").inner_text() == "", view
