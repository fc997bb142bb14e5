"""What version 0.1.0 has written still opens: addresses of views, and exported pages (tests/fixtures)."""

import io
import json
import zipfile
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from bort.app import Explorer
from bort.subject import resolve_all
from tests.app.pages import open_at

FOLDER = Path(__file__).parents[1] / "fixtures" / "0.1.0"
MANIFESTS = {name: json.loads((FOLDER / f"{name}-manifest.json").read_text()) for name in ("evidence", "inside")}


@pytest.fixture(scope="module")
def old_explorer():
    return Explorer(resolve_all([FOLDER / "bort-s", FOLDER / "sgd"]))


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_an_address_is_read_into_the_same_state(client_of, old_explorer, manifest):
    answer = client_of(old_explorer).get(f"/api/export.zip{manifest['address']}")
    assert answer.status_code == 200
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        again = json.loads(archive.read("manifest.json"))
    assert again["view"].items() >= manifest["view"].items(), "what has been added since is at its default"
    assert again["address"] == manifest["address"]
    assert again.keys() == manifest.keys()
    for run, before in zip(again["runs"], manifest["runs"], strict=True):
        assert {key: run[key] for key in before} == close(before), "the same image, and the same numbers"


def close(value):
    """The same up to rounding, which differs between machines."""
    if isinstance(value, dict):
        return {key: close(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [close(inner) for inner in value]
    return pytest.approx(value, rel=1e-3, abs=1e-4) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def old_server(serve, old_explorer):
    return serve(old_explorer)


@pytest.mark.slow
@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_the_page_opens_at_an_address(tab, old_server, manifest):
    open_at(tab, old_server, manifest["address"])
    assert tab.locator("#message").inner_text() == ""
    assert tab.locator("[role=tab][aria-selected=true]").get_attribute("data-view") == manifest["view"]["view"]
    now = dict(parse_qsl(tab.url.partition("?")[2], keep_blank_values=True))
    assert now.items() >= dict(parse_qsl(manifest["address"][1:])).items()
    for number, run in enumerate(manifest["runs"]):
        card = tab.locator("article.run").nth(number)
        assert card.locator("h2").inner_text().startswith(run["name"])
        assert card.locator("ol.said li").first.inner_text().split()[0] == run["says"][0]["name"]


@pytest.mark.slow
def test_what_the_page_shows_at_the_address_of_the_evidence(tab, old_server):
    manifest = MANIFESTS["evidence"]
    open_at(tab, old_server, manifest["address"])
    for number, run in enumerate(manifest["runs"]):
        caption = (
            tab.locator("article.run").nth(number).locator("figcaption", has_text="insertion, step 4 of 28: logit")
        )
        shown = float(caption.inner_text().split()[-1])
        assert shown == pytest.approx(run["curves"]["logit"]["insertion"][4], abs=2e-3)
    assert tab.locator("input[name=tracked]").input_value() == "5"
    assert tab.locator("input[name=threshold]").input_value() == "0.3"


@pytest.mark.slow
def test_what_the_page_shows_at_the_address_of_the_inside(tab, old_server):
    manifest = MANIFESTS["inside"]
    open_at(tab, old_server, manifest["address"])
    for number, run in enumerate(manifest["runs"]):
        card = tab.locator("article.run").nth(number)
        legend = card.locator(".legend p", has_text="correlation with the input").inner_text()
        assert float(legend.split()[-1]) == pytest.approx(run["correlation"], abs=0.006)
        channels = [int(node.get_attribute("data-channel")) for node in card.locator(".channels button").all()]
        assert channels == [channel["channel"] for channel in run["channels"]]
    first, second = tab.locator("article.run").all()
    assert first.locator("figcaption", has_text="after the edits").count() == 1
    assert first.locator(".channels .off").get_attribute("data-channel") == "2"
    assert second.locator(".channels .off").count() == 0


@pytest.mark.slow
def test_an_exported_page_opens_by_itself(browser):
    page, messages, requests = browser.new_page(), [], []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    file = (FOLDER / "evidence.html").as_uri()
    page.goto(file)
    assert messages == []
    assert [url for url in requests if not url.startswith("data:")] == [file]
    assert page.locator("h2").all_inner_texts() == ["bort-s", "sgd"]
    pictures = page.locator("section img")
    assert pictures.count() == 6
    assert all(picture.evaluate("image => image.complete && image.naturalWidth > 0") for picture in pictures.all())
    assert page.locator("polyline").count() == 4
    page.close()
