"""The view "Find images" and the strip of images in a real browser."""

import json
import zipfile
from pathlib import Path

import pytest
import torch

from bort.app import Explorer
from bort.app._find import PAGE, Finder, Question
from bort.subject import of_models, resolve_all
from tests.app.pages import open_at, until
from tests.subject.small import network

pytestmark = pytest.mark.slow

SIZES = [
    {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    for width, scheme in ((390, "light"), (390, "dark"), (1440, "light"), (1440, "dark"))
]


@pytest.fixture(scope="module")
def explorer(runs):
    """Two runs that often differ; what they say is known already."""
    explorer = Explorer(resolve_all(runs), examples=6)
    explorer.index.start()
    assert explorer.index.wait(60)
    return explorer


def names(tab):
    return [node.get_attribute("data-name") for node in tab.locator(".found-image").all()]


def expected(explorer, **question):
    return [image["name"] for image in Finder(explorer).find(Question(**question))["images"]]


def shows(tab, wanted):
    until(
        tab,
        "wanted => [...document.querySelectorAll('.found-image')].map(n => n.dataset.name).join() === wanted",
        ",".join(wanted),
    )


@pytest.mark.parametrize("tab", SIZES, indirect=True)
def test_it_fits_and_says_what_is_right(tab, server, explorer):
    open_at(tab, server, "?view=find")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert names(tab) == expected(explorer)
    assert tab.locator(".legend .run-name").all_inner_texts() == list(explorer.subjects)
    rows = Finder(explorer).find(Question())["images"]
    for node, row in list(zip(tab.locator(".found-image").all(), rows, strict=True))[:3]:
        assert node.locator(".truth").inner_text() == row["label"]
        for line, said in zip(node.locator(".said-by").all(), row["runs"], strict=True):
            sign = "✓ right" if said["right"] else "✗ wrong"
            assert line.inner_text().startswith(f"{sign} {said['said']} ")
    colours = {
        node.evaluate("node => getComputedStyle(node).borderLeftColor")
        for node in tab.locator(".found-image").first.locator(".said-by").all()
    }
    assert len(colours) == 2, "each run has its own"
    assert "50 of 50 test images" in tab.locator(".indexing").inner_text()
    assert tab.locator("#message").inner_text() == ""


def test_questions_by_clicking(tab, server, explorer):
    open_at(tab, server, "?view=find")
    tab.locator("select[name=find_label]").select_option("3")
    shows(tab, expected(explorer, label="3"))
    tab.locator("#find-all").click()
    shows(tab, expected(explorer))
    tab.locator("input[name=find_disagree]").check()
    shows(tab, expected(explorer, disagree=True))
    tab.locator("select[name=find_order]").select_option("confidence")
    shows(tab, expected(explorer, disagree=True, order="confidence"))
    assert "find_disagree=1" in tab.url
    assert "find_order=confidence" in tab.url
    tab.reload()
    tab.wait_for_selector("body[data-ready]")
    assert names(tab) == expected(explorer, disagree=True, order="confidence"), "the address is the view"
    tab.locator("#find-all").click()
    tab.locator("select[name=find_wrong]").select_option("1")
    shows(tab, expected(explorer, wrong="1"))
    said = Finder(explorer).find(Question(wrong="1"))["images"][0]["runs"][1]["said"]
    tab.locator("select[name=find_said]").select_option(said)
    shows(tab, expected(explorer, wrong="1", said=said))
    tab.locator("select[name=find_order]").select_option("correlation")
    shows(tab, expected(explorer, wrong="1", said=said, order="correlation"))
    assert tab.locator(".found-image .value").first.inner_text().startswith("r ")
    open_at(tab, server, "?view=find&find_label=nothing")
    assert tab.locator(".found").inner_text() == "No image is like that."
    assert tab.locator("select[name=find_label]").input_value() == "nothing"


def test_pages_and_the_way_into_an_image(tab, server, explorer):
    open_at(tab, server, "?view=find")
    assert tab.locator(".pager").inner_text().split() == ["‹", "page", "1", "of", "2", "›"]
    assert tab.locator(".pager .before").is_disabled()
    tab.locator(".pager .after").click()
    shows(tab, expected(explorer, page=1))
    assert tab.locator(".pager .after").is_disabled()
    name = names(tab)[-1]
    assert name == "test-49"
    tab.locator(".found-image").last.click()
    until(tab, "location.search.includes('image=test-49')")
    tab.locator(".channels button").first.wait_for()
    chosen = tab.locator("#images [aria-selected=true]")
    assert chosen.get_attribute("data-name") == name
    label = explorer.gallery[name].label
    assert chosen.get_attribute("title") == f"{name}: {label}"
    tab.go_back()
    until(tab, "location.search.includes('view=find')")
    shows(tab, expected(explorer, page=1))
    tab.locator("select[name=find_label]").select_option("2")
    shows(tab, expected(explorer, label="2"))
    assert "find_page" not in tab.url, "another question begins at its first page"


def test_by_the_keyboard_alone(tab, server, explorer):
    open_at(tab, server, "?view=find")
    for _ in range(40):
        if tab.evaluate("document.activeElement.classList.contains('found-image')"):
            break
        tab.keyboard.press("Tab")

    def focus():
        return tab.evaluate("document.activeElement.dataset.name")

    first = expected(explorer)
    assert focus() == first[0]
    tab.keyboard.press("ArrowRight")
    assert focus() == first[1]
    row = tab.evaluate("""() => {
        const all = [...document.querySelectorAll('.found-image')];
        return all.filter(node => node.offsetTop === all[0].offsetTop).length;
    }""")
    tab.keyboard.press("ArrowDown")
    assert focus() == first[1 + row]
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("End")
    assert focus() == first[-1]
    tab.keyboard.press("ArrowRight")
    until(tab, "document.activeElement.dataset.name === 'test-48'")
    tab.keyboard.press("ArrowLeft")
    until(tab, f"document.activeElement.dataset.name === 'test-{PAGE - 1}'")
    tab.keyboard.press("PageDown")
    until(tab, "document.activeElement.dataset.name === 'test-48'")
    tab.keyboard.press("PageDown")
    assert focus() == "test-48", "there is no further page"
    tab.keyboard.press("Enter")
    until(tab, "location.search.includes('image=test-48')")
    tab.locator(".channels button").first.wait_for()


def test_it_is_saved(tab, server):
    open_at(tab, server, "?view=find&find_disagree=1")
    with tab.expect_download() as download:
        tab.locator("#export").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert [image["name"] for image in manifest["runs"][0]["images"]] == names(tab)
    with tab.expect_download() as download:
        tab.locator("#page").click()
    assert "Test images that were found" in Path(download.value.path()).read_text()


def test_images_appear_while_the_index_is_computed(tab, serve, runs):
    explorer = Explorer(resolve_all(runs), examples=2)
    open_at(tab, serve(explorer))
    with explorer.lock:  # as while another page's question is computed
        tab.locator("#tab-find").click()
        tab.locator(".indexing", has_text="50 more are being looked at").wait_for()
        assert tab.locator(".indexing progress").get_attribute("max") == "50"
        assert tab.locator(".found-image").count() == 0
    until(tab, "document.querySelectorAll('.found-image').length === 48")
    until(tab, "!document.querySelector('.indexing progress')")
    assert "correlations are known of the first 50" in tab.locator(".indexing").inner_text()


def test_a_failed_index_says_why_and_can_be_tried_again(tab, serve, runs, monkeypatch):
    explorer = Explorer(resolve_all(runs), examples=2)
    original = explorer.index._predict

    def fail(*arguments):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(explorer.index, "_predict", fail)
    open_at(tab, serve(explorer), "?view=find")
    tab.locator(".indexing", has_text="the others could not be asked about: out of memory").wait_for()
    monkeypatch.setattr(explorer.index, "_predict", original)
    tab.locator(".indexing button").click()
    until(tab, "document.querySelectorAll('.found-image').length === 48")


# --- links, and the strip


def test_a_link_opens_any_test_image(tab, server, explorer):
    open_at(tab, server, "?view=inside&image=test-17")
    assert tab.locator("#message").inner_text() == ""
    assert tab.locator("#images [aria-selected=true]").get_attribute("data-name") == "test-17"
    assert tab.locator("#images button").count() == 7
    first = tab.locator("article.run").first.locator("ol.said li").first
    assert first.inner_text().split()[0] == explorer.predict("plain", "test-17")[0]["name"]
    open_at(tab, server, "?view=transplant&image=test-20&other=test-30")
    assert tab.locator("#view figure img[src*='image=test-30']").count() > 0
    assert {"test-20", "test-30"} <= {node.get_attribute("data-name") for node in tab.locator("#images button").all()}
    open_at(tab, server, "?image=test-50")
    assert tab.locator("#message").inner_text() == "The address asks for the image test-50, which is not there."
    open_at(tab, server, "?view=find&find_wrong=7")
    assert "the mistakes of network 7" in tab.locator("#message").inner_text()


def test_one_network_and_photographs_without_classes(tab, serve):
    torch.manual_seed(0)
    subjects = of_models(network(), torch.rand(5, 3, 8, 8), mean=(0.5,) * 3, std=(0.5,) * 3)
    address = serve(Explorer(subjects))
    open_at(tab, address, "?view=find&find_order=confidence")
    assert "the order by a difference in confidence" in tab.locator("#message").inner_text()
    until(tab, "document.querySelectorAll('.found-image').length === 5")
    assert tab.locator("select[name=find_label], select[name=find_wrong], input[name=find_disagree]").count() == 0
    assert tab.locator(".truth").first.inner_text() == "test-0", "a name where there is no class"
    assert "right" not in tab.locator(".found").inner_text()
    assert tab.locator("#images .label").count() == 0


def test_many_images_with_long_names(tab, serve):
    torch.manual_seed(0)
    classes = [f"a species with the very long name number {n}" for n in range(5)]
    subjects = of_models(
        network(),
        torch.rand(120, 3, 8, 8),
        labels=[n % 5 for n in range(120)],
        classes=classes,
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
    )
    explorer = Explorer(subjects, examples=100)
    address = serve(explorer)
    open_at(tab, address, "?image=test-90")
    assert tab.locator("#images button").count() == 100
    chosen = tab.locator("#images [aria-selected=true]")
    strip, box = tab.locator("#images").bounding_box(), chosen.bounding_box()
    assert strip["x"] <= box["x"] <= box["x"] + box["width"] <= strip["x"] + strip["width"], "it is scrolled to"
    place = chosen.locator(".thumb").evaluate(
        "node => [node.style.backgroundSize, node.style.backgroundPosition].join(' ')"
    )
    columns, rows = 16, 7
    row, column = divmod(90, columns)
    assert [float(part.rstrip("%")) for part in place.split()] == pytest.approx(
        [100 * columns, 100 * rows, 100 * column / (columns - 1), 100 * row / (rows - 1)], abs=0.01
    )
    label = chosen.locator(".label")
    assert label.bounding_box()["height"] < 20, "cut, and whole in the title"
    assert chosen.get_attribute("title").endswith(explorer.gallery["test-90"].label)
    chosen.focus()
    tab.keyboard.press("ArrowRight")
    until(tab, "location.search.includes('image=test-91')")
    open_at(tab, address, "?view=find")
    until(tab, "document.querySelectorAll('.found-image').length === 48")
    for node in tab.locator(".found-image .truth").all()[:3]:
        assert node.evaluate("node => node.scrollWidth <= node.clientWidth")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
