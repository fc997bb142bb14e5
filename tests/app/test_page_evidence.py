"""Which pixels count, and mixing two images, in a real browser: by mouse and by keyboard, narrow and wide."""

import pytest

from bort._colours import colour
from tests.app.pages import changes, open_at, source, until

pytestmark = pytest.mark.slow

LAPTOP, PHONE = {"viewport": {"width": 1366, "height": 680}}, {"viewport": {"width": 390, "height": 844}}


def areas(explorer, method, score, target=None):
    return {run: curves(explorer, run, method, target)[score]["areas"] for run in explorer.subjects}


def curves(explorer, run, method, target=None):
    saliency = explorer.saliency.map(run, "test-0", method, target)
    return explorer.saliency.curve(run, "test-0", saliency, target)


def cells(tab, row):
    return tab.locator("table.values tbody tr").nth(row).locator("td").all_inner_texts()


def test_settings_and_the_scrubber(tab, server, explorer):
    open_at(tab, server, "?view=evidence")
    first = tab.locator("article.run").first
    for name, value in (("tracked", "4"), ("threshold", "0.6"), ("strength", "0.9")):
        before = source(tab, 0)
        tab.locator(f"input[name={name}]").fill(value)
        changes(tab, before, 0)
    tab.locator("input[name=step]").fill("14")
    first.locator("figcaption", has_text="deletion, step 14 of 28: relative logit").wait_for()
    tab.locator("select[name=which]").select_option("insertion")
    first.locator("figcaption", has_text="insertion, step 14 of 28").wait_for()
    tab.locator("select[name=method]").select_option(label="CAM")
    first.locator("figcaption", has_text="CAM").wait_for()
    tab.locator("select[name=target]").select_option("3")
    tab.locator("select[name=score]").select_option("logit")
    expected = curves(explorer, "plain", "cam", 3)["logit"]["insertion"][14]
    first.locator("figcaption", has_text=f"step 14 of 28: logit {expected:.3f}").wait_for()
    assert tab.locator("select[name=method] option[value=sat]").inner_text() == "SAT, the paper's method"
    assert tab.locator("select[name=method] option[value=rise]").inner_text() == "RISE (slow)"


@pytest.mark.parametrize("tab", [LAPTOP | {"color_scheme": scheme} for scheme in ("light", "dark")], indirect=True)
def test_all_runs_on_the_same_axes(tab, server, explorer):
    open_at(tab, server, "?view=evidence&method=cam&score=probability&step=9")
    dark = tab.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    drawn = tab.locator("svg.curves path").evaluate_all(
        "paths => paths.map(path => [getComputedStyle(path).stroke, getComputedStyle(path).strokeDasharray])"
    )
    codes = [colour(number, dark=dark) for number in (0, 0, 1, 1)]
    assert [stroke for stroke, _ in drawn] == [f"rgb{tuple(int(c[i : i + 2], 16) for i in (1, 3, 5))}" for c in codes]
    assert [dash == "none" for _, dash in drawn] == [True, False, True, False], "deletion solid, insertion dashed"
    dots = tab.locator("article.run h2 .dot").evaluate_all(
        "dots => dots.map(dot => getComputedStyle(dot).backgroundColor)"
    )
    assert dots == [drawn[0][0], drawn[2][0]], "a run has one colour everywhere"
    for row, run in enumerate(explorer.subjects):
        own = curves(explorer, run, "cam")["probability"]
        expected = [own["deletion"][9], own["insertion"][9], *own["areas"]]
        assert [float(cell) for cell in cells(tab, row)] == pytest.approx(expected, abs=6e-4)
    assert tab.locator("table.values tbody th").all_inner_texts() == list(explorer.subjects)
    texts = tab.locator("svg.curves text").all_text_contents()
    assert {"0%", "50%", "100%", "probability", "of the pixels are taken away or put in"} <= set(texts)
    in_sight = "node => { const box = node.getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight; }"
    for part in ("input[name=step]", "svg.curves", "article.run .pair img"):
        assert tab.locator(part).last.evaluate(in_sight), f"{part} is in sight at 1366 × 680"


@pytest.mark.parametrize("tab", [LAPTOP], indirect=True)
def test_the_plot_by_mouse_and_by_keyboard(tab, server, explorer):
    open_at(tab, server, "?view=evidence&method=cam&score=logit")
    plot, at = tab.locator("svg.curves"), tab.locator("table.values .at")
    own = curves(explorer, "plain", "cam")["logit"]
    box = plot.bounding_box()
    middle = box["x"] + 46 + (box["width"] - 60) / 2, box["y"] + 80
    tab.mouse.move(*middle)
    assert at.inner_text() == "step 14 of 28"
    assert [float(cell) for cell in cells(tab, 0)[:2]] == pytest.approx(
        [own["deletion"][14], own["insertion"][14]], abs=6e-4
    )
    assert "step=" not in tab.url, "looking chooses nothing"
    tab.mouse.move(5, 5)
    assert at.inner_text() == "step 0 of 28"
    before = source(tab, 1)
    tab.mouse.click(*middle)
    changes(tab, before, 1)
    assert "step=14" in tab.url
    assert tab.locator("input[name=step]").input_value() == "14"
    tab.mouse.move(5, 5)
    plot.focus()
    for _ in range(3):
        tab.keyboard.press("ArrowLeft")
    assert plot.get_attribute("aria-valuenow") == "11"
    assert f"plain: deletion {own['deletion'][11]:.3f}" in plot.get_attribute("aria-valuetext")
    assert "step=14" in tab.url
    tab.keyboard.press("Enter")
    until(tab, "location.search.includes('step=11')")
    tab.keyboard.press("End")
    assert at.inner_text() == "step 28 of 28"
    tab.keyboard.press("Escape")
    until(tab, "document.querySelector('table.values .at').innerText === 'step 11 of 28'")
    assert plot.evaluate("node => node === document.activeElement"), "the focus stays"


def test_a_curve_that_does_not_exist(tab, server, explorer):
    """A class with a negative logit has no relative score: n/a, and the other run is still drawn."""
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    target = int(model(x).argmin())
    open_at(tab, server, f"?view=evidence&method=cam&target={target}")
    assert cells(tab, 0) == ["n/a"] * 4
    tab.locator(".caution", has_text="plain: the clean image's logit").wait_for()
    other = areas(explorer, "cam", "relative", target)["<b>&$\\alpha$"]
    assert tab.locator("svg.curves path").count() == (0 if other[0] is None else 2)


def test_the_difference_of_two_maps(tab, server, client):
    open_at(tab, server, "?view=evidence&method=ig")
    assert tab.locator(".differences").count() == 0
    tab.locator("input[name=difference]").focus()
    tab.keyboard.press("Space")
    picture = tab.locator(".differences img")
    picture.wait_for()
    assert "difference=1" in tab.url
    ask = {"run": "plain", "against": "<b>&$\\alpha$", "image": "test-0", "method": "ig"}
    assert picture.get_attribute("src") == client.get("/api/saliency/difference", params=ask).json()["picture"]
    words = tab.locator(".differences .scale").inner_text()
    assert "more in <b>&$\\alpha$" in words
    tab.reload()
    tab.wait_for_selector(".differences img")
    tab.locator("input[name=difference]").click()
    until(tab, "!document.querySelector('.differences')")


def test_signed_maps_have_a_legend_of_their_own(tab, server):
    open_at(tab, server, "?view=evidence&method=ig")
    assert tab.locator(".runs > .scale").inner_text().split("\n") == ["against the class", "for it"]
    tab.locator("select[name=method]").select_option("cam")
    until(tab, "document.querySelector('.runs > .scale').innerText.includes('counts much')")


@pytest.mark.parametrize("tab", [PHONE], indirect=True)
@pytest.mark.parametrize(("view", "name"), [("evidence", "step"), ("transplant", "k")])
def test_the_main_slider_stays_in_sight_on_a_phone(tab, server, view, name):
    open_at(tab, server, f"?view={view}")
    for card in tab.locator("article.run .pair").all():
        card.scroll_into_view_if_needed()
        box = tab.locator(f"input[name={name}]").bounding_box()
        assert 0 <= box["y"] <= 844 - box["height"]


def test_pixels_of_small_pictures_are_of_one_size(tab, server):
    open_at(tab, server, "?view=evidence")
    for width in tab.locator("article.run .pair img").evaluate_all("images => images.map(image => image.offsetWidth)"):
        assert width % 28 == 0
        assert width >= 112


def test_what_a_network_cannot_do_is_said_in_its_card(tab, server):
    """The other network is still shown."""
    tab.route(
        "**/api/saliency?run=plain*",
        lambda route: route.fulfill(status=400, json={"message": "plain has no such map."}),
    )
    open_at(tab, server, "?view=evidence")
    tab.locator("article.run").first.locator(".caution", has_text="plain has no such map.").wait_for()
    assert tab.locator("article.run").nth(1).locator(".pair img").count() == 2
    assert cells(tab, 0) == ["n/a"] * 4
    assert tab.locator("svg.curves path").count() in (0, 2)


# --- mixing two images


def test_transplants(tab, server):
    open_at(tab, server, "?view=transplant")
    tab.locator(".sources .strip button").nth(3).click()
    until(tab, "location.search.includes('other=test-3')")
    tab.locator("dl.verdicts dt", has_text="made picture").first.wait_for()
    before = source(tab, 0)
    tab.locator("select[name=path]").select_option("target")
    changes(tab, before, 0)
    before = source(tab, 0)
    tab.locator("input[name=k]").fill("1")
    changes(tab, before, 0)
    tab.locator("p", has_text="1 features of conv5").first.wait_for()


def test_what_a_transplant_changes(tab, server, client):
    open_at(tab, server, "?view=transplant&other=test-1")
    tab.locator("input[name=difference]").check()
    tab.locator("figcaption", has_text="made less source").first.wait_for()
    ask = {"run": "plain", "source": "test-0", "target": "test-1", "layer": "conv5", "k": 64, "difference": 1}
    change = client.get("/api/transplant", params=ask).json()["change"]
    assert source(tab, 1) == change["picture"]
    ends = tab.locator("article.run").first.locator(".scale").inner_text().split()
    assert float(ends[-1]) == pytest.approx(change["scale"], rel=0.06)
    assert ends[0] == ends[-1].replace("+", "−")
