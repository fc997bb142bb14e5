"""Options of methods, the package's own and others': listed, set within their bounds, part of a view and of its export."""

import io
import json
import zipfile

import numpy as np
import pytest
import torch

from bort import explain
from tests.app.pages import open_at, until


def scaled(model, x, target=None, *, factor=1.0, times=2, inverted=False, colour="all"):
    """A map that says how it was asked for."""
    map_ = x.mean(dim=1) * factor * times
    return map_.amax() - map_ if inverted else map_


RANGES = {"factor": (0.5, 3.0), "times": (1, 5), "inverted": (False, True)}
ASK = {"run": "plain", "image": "test-0", "method": "scaled"}


@pytest.fixture
def registered():
    with explain.local_registry():
        explain.register("scaled", scaled, ranges=RANGES)
        explain.register("slow-scaled", scaled, slow=True, ranges=RANGES)
        yield


@pytest.fixture
def asked(client, registered):
    return client


def test_they_are_listed(asked):
    options = asked.get("/api/info").json()["options"]
    assert options["scaled"] == [
        {"name": "factor", "kind": "number", "default": 1.0, "least": 0.5, "most": 3.0},
        {"name": "times", "kind": "integer", "default": 2, "least": 1, "most": 5},
        {"name": "inverted", "kind": "boolean", "default": False, "least": False, "most": True},
    ]
    assert options["sat"] == [], "it has parameters of its own"
    assert [option["name"] for option in options["ig"]] == ["steps"]


def test_they_are_set(asked, explorer):
    x = explorer.image("plain", "test-0").mean(dim=1)[0]
    torch.testing.assert_close(explorer.saliency.map("plain", "test-0", "scaled", options={"factor": 2.5}), x * 5)
    plain = asked.get("/api/saliency", params=ASK).json()
    given = asked.get("/api/saliency", params=ASK | {"options": "inverted:1,times:5"}).json()
    assert given != plain
    assert asked.get("/api/saliency", params=ASK | {"options": "inverted:0"}).json() == plain
    curves = [asked.get("/api/curve", params=ASK | {"options": text}).json() for text in ("", "inverted:1")]
    assert curves[0] != curves[1]


def test_slow_ones_are_computed_for_each(asked, explorer):
    ask = ASK | {"method": "slow-scaled"}

    def compute(**options):
        status = asked.post("/api/jobs", params=ask | options).json()
        while status["state"] in ("waiting", "running"):
            status = asked.get(f"/api/jobs/{status['job']}").json()
        assert status["state"] == "done"
        return status["job"]

    first, second = compute(options="times:4"), compute()
    assert first != second
    assert compute(options="times:4") == first
    assert asked.get("/api/saliency", params=ask | {"options": "times:4"}).status_code == 200
    late = asked.get("/api/saliency", params=ask | {"options": "times:5"})
    assert (late.status_code, "start it first" in late.json()["message"]) == (404, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("times:9", "times=9: must be a whole number from 1 to 5"),
        ("times:1.5", "times=1.5: must be a whole number from 1 to 5"),
        ("factor:nan", "factor=nan: must be from 0.5 to 3"),
        ("factor", "factor=: must be from 0.5 to 3"),
        ("colour:1", "scaled has no option 'colour'; there are factor, times, inverted."),
    ],
)
def test_others_are_refused(asked, options, message):
    answer = asked.get("/api/saliency", params=ASK | {"options": options})
    assert (answer.status_code, message in answer.json()["message"]) == (400, True)


def test_exports_have_them(asked):
    view = {"view": "evidence", "image": "test-0", "method": "scaled", "options": "factor:2,inverted:1"}
    answer = asked.get("/api/export.zip", params=view)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        saliency = np.load(io.BytesIO(archive.read("1-plain/scaled.npy")))
    assert manifest["runs"][0]["options"] == {"factor": 2.0, "inverted": True}
    assert "options=factor%3A2%2Cinverted%3A1" in manifest["address"]
    assert saliency.min() == 0
    assert "scaled, factor 2, inverted 1" in asked.get("/api/export.html", params=view).text


@pytest.mark.slow
def test_they_are_controls_of_the_page(tab, server, registered):
    open_at(tab, server, "?view=evidence&method=scaled")
    first = tab.locator("article.run").first.locator("figure img").first
    before = first.get_attribute("src")
    tab.locator("input[name=inverted]").check()
    until(tab, "location.search.includes('options=inverted%3A1')")
    until(tab, "src => document.querySelectorAll('article.run figure img')[0].src !== src", before)
    tab.locator("input[name=times]").focus()
    tab.keyboard.press("ArrowRight")
    until(tab, "location.search.includes('times%3A3')")
    assert tab.locator("[data-control='evidence.options.scaled.times'] output").inner_text() == "3"
    assert tab.evaluate("document.activeElement.name") == "times", "the focus stays"
    after = first.get_attribute("src")
    address = tab.url
    tab.keyboard.press("ArrowLeft")
    until(tab, "!location.search.includes('times')")
    open_at(tab, "", address)
    assert first.get_attribute("src") == after, "a link is the view"
    assert tab.locator("input[name=inverted]").is_checked()
    tab.locator("select[name=method]").select_option("cam")
    until(tab, "!location.search.includes('options')")
    assert tab.locator("[data-control^='evidence.options']").count() == 0
    open_at(tab, server, "?view=evidence&method=scaled&options=times:99")
    assert "the options times:99" in tab.locator("#message").inner_text()


@pytest.mark.slow
def test_options_of_a_slow_method(tab, server, registered):
    open_at(tab, server, "?view=evidence&method=slow-scaled&image=test-1&options=times:4")
    tab.locator("figcaption", has_text="slow-scaled").nth(1).wait_for(timeout=60_000)
    before = tab.locator("article.run").first.locator("figure img").first.get_attribute("src")
    tab.locator("input[name=inverted]").check()
    until(
        tab,
        "src => ![null, undefined, src].includes(document.querySelectorAll('article.run figure img')[0]?.src)",
        before,
    )
    assert "options=times%3A4%2Cinverted%3A1" in tab.url
