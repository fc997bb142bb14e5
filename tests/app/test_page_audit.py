"""The audit's table in a real browser: pairs of columns, bars, order, differences, and layers that one run has alone."""

import json

import pytest

from bort.measure import COLUMNS
from tests.app.pages import open_at, until

pytestmark = pytest.mark.slow

SAME = {"shape", "invertible", "floor"}
"""Columns that say the same of two runs of one architecture: shown once."""


def layers(tab):
    return [text.split("\n")[0] for text in tab.locator("table.paired tbody th").all_inner_texts()]


def column(tab, key, run):
    """The numbers of a column's part."""
    place = 1
    for each in COLUMNS[1:]:
        if each.key == key:
            break
        place += 1 if each.key in SAME else 2
    rows = tab.locator(f"table.paired tbody tr > :nth-child({place + 1 + run})")
    return [text.strip() for text in rows.all_inner_texts()]


def test_paired_columns(tab, server, explorer):
    order = []
    for event in ("request", "requestfinished"):
        tab.on(event, lambda request, event=event: order.append(event) if "/api/audit" in request.url else None)
    open_at(tab, server, "?view=audit")
    assert order == ["request", "requestfinished"] * 2, "one after another: an audit may take minutes"
    titles = [text.replace("?", "").strip() for text in tab.locator("table.paired th.title").all_inner_texts()]
    assert titles == [each.title for each in COLUMNS[1:]]
    for number, run in enumerate(explorer.subjects):
        audit = list(explorer.audit(run))
        assert layers(tab) == [layer.name for layer in audit]
        for each in COLUMNS[1:]:
            shown = column(tab, each.key, 0 if each.key in SAME else number)
            assert shown == [each.show(layer) for layer in audit], each.key
    bars = tab.locator("table.paired tbody tr").first.locator("td .bar").count()
    assert bars == 2 * (len(COLUMNS) - 1 - len(SAME))
    assert f"over {explorer.image_count('plain')} test images" in tab.locator(".audit .wide-note").inner_text()


def test_bars_of_a_column_have_one_scale(tab, server, explorer):
    open_at(tab, server, "?view=audit")
    residuals = {run: [layer.residual for layer in explorer.audit(run)] for run in explorer.subjects}
    most = max(max(own) for own in residuals.values())
    parts = tab.evaluate("""() => [...document.querySelectorAll('table.paired tbody tr')].map(row =>
        [...row.querySelectorAll('.bar')].map(bar => Number(bar.style.getPropertyValue('--part'))))""")
    place = 2 * [each.key for each in COLUMNS[1:] if each.key not in SAME].index("residual")
    for number, own in enumerate(residuals.values()):
        assert [row[place + number] for row in parts] == pytest.approx([value / most for value in own])


def test_sorting_by_mouse_and_by_keyboard(tab, server, explorer):
    open_at(tab, server, "?view=audit")
    audit = list(explorer.audit("<b>&$\\alpha$"))
    ranked = [layer.name for layer in sorted(audit, key=lambda layer: layer.ratio)]
    button = tab.locator("[data-sort='ratio.1']")
    button.click()
    until(tab, "location.search.includes('sort=-ratio.1')")
    assert layers(tab) == ranked[::-1]
    assert button.locator("xpath=..").get_attribute("aria-sort") == "descending"
    tab.keyboard.press("Enter")  # the button still has the focus
    until(tab, "location.search.includes('sort=ratio.1')")
    assert layers(tab) == ranked
    tab.reload()
    tab.wait_for_selector("table.paired tbody tr")
    assert layers(tab) == ranked
    button.click()
    until(tab, "!location.search.includes('sort')")
    assert layers(tab) == [layer.name for layer in audit]


def test_differences(tab, server, explorer):
    open_at(tab, server, "?view=audit")
    tab.locator("input[name=difference]").focus()
    tab.keyboard.press("Space")
    until(tab, "location.search.includes('difference=1')")
    first, second = (list(explorer.audit(run)) for run in explorer.subjects)
    expected = [f"{one.residual - other.residual:+.3f}" for one, other in zip(first, second, strict=True)]
    place = 1 + [each.key for each in COLUMNS[1:]].index("residual")
    shown = tab.locator(f"table.paired tbody tr > :nth-child({place + 1})").all_inner_texts()
    plain = [text.strip().replace("−", "-") for text in shown]
    assert plain == [text if float(text) else text[1:] for text in expected]
    name = tab.locator("[data-sort='residual.1']")
    assert name.get_attribute("aria-label") == "Sort by residual of plain less <b>&$\\alpha$"
    name.click()
    until(tab, "location.search.includes('sort=-residual.1')")
    shown = tab.locator(f"table.paired tbody tr > :nth-child({place + 1})").all_inner_texts()
    values = [float(text.strip().replace("−", "-")) for text in shown]
    assert values == sorted(values, reverse=True)


def test_layers_of_one_run_alone(tab, server, client):
    """Matched by name; what a run does not have is empty."""
    answer = client.get("/api/audit", params={"run": "<b>&$\\alpha$"}).json()
    answer["layers"][1]["name"] = "other.weight"
    tab.route(
        "**/api/audit?run=%3Cb*", lambda route: route.fulfill(body=json.dumps(answer), content_type="application/json")
    )
    open_at(tab, server, "?view=audit")
    texts = tab.locator("table.paired tbody th").all_inner_texts()
    assert texts[1].replace("\n", " ").split() == ["conv2.weight", "only", "in", "plain"]
    assert texts[-1].replace("\n", " ").split() == ["other.weight", "only", "in", "<b>&$\\alpha$"]
    values = column(tab, "residual", 0), column(tab, "residual", 1)
    assert (values[0][-1], values[1][1]) == ("", "")
    assert values[0][1]
    assert values[1][-1]


@pytest.mark.parametrize("tab", [{"viewport": {"width": 390, "height": 844}}], indirect=True)
def test_on_a_phone(tab, server):
    open_at(tab, server, "?view=audit")
    name = tab.locator("table.paired tbody th").first
    before = name.bounding_box()["x"]
    tab.locator(".audit .wide").evaluate("box => { box.scrollLeft = 300; }")
    assert tab.locator(".audit .wide").evaluate("box => box.scrollLeft") > 200, "it scrolls inside its box"
    assert name.bounding_box()["x"] == before, "the names of the layers stay"
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
