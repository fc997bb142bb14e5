"""`make docs`: the site is built without a warning, its links lead somewhere, it has every public name and loads nothing from
elsewhere; in a browser, from file://, its search finds and its pages fit a telephone."""

import importlib
import os
import re
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT
from tests.docs.public import public
from tests.docs.site import Site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site").resolve()
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-c", "docs", "-d", str(folder / "doctrees")]
    subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ".", str(folder / "html")],
        cwd=ROOT,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return Site(folder / "html")


def test_links_lead_somewhere(site):
    assert len(site.pages) > 50
    assert site.broken() == []


def test_nothing_is_loaded_from_elsewhere(site):
    assert site.foreign() == []


def test_every_public_name_has_an_entry(site):
    anchors = set().union(*(page.anchors for path, page in site.pages.items() if path.parent.name == "api"))
    modules = {"bort.train.recipes"}  # listed by bort.train, and a section of its page
    assert [str(name) for name in public.names() if str(name) not in anchors | modules] == []


def test_every_public_package_has_a_page():
    packages = {folder.parent.name for folder in (ROOT / "src" / "bort").glob("*/__init__.py")} - {"cli"}
    modules = {file.stem for file in (ROOT / "src" / "bort").glob("[a-z]*.py")}
    assert set(public.PACKAGES) == packages | modules
    for module in public.MODULES:
        assert importlib.import_module(module).__all__


def test_every_document_is_in_the_menu():
    sys.path.append(str(ROOT / "docs"))
    try:
        configuration = importlib.import_module("conf")
    finally:
        sys.path.remove(str(ROOT / "docs"))
    files = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "api").glob("*.rst"), *(ROOT / "results").glob("*.md")]
    written = {file.relative_to(ROOT).with_suffix("").as_posix() for file in files}
    assert written - set(configuration.PAGES) == set()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1440, "light")])
def test_pages_fit_a_telephone_and_a_desk(site, browser, width, scheme):
    tab = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme).new_page()
    requests, errors = [], []
    tab.on("request", lambda request: requests.append(request.url))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    for file in (site.root / "README.html", *(site.root / "results").glob("*.html"), *site.root.glob("docs/**/*.html")):
        tab.goto(file.as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, file
        background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) == (scheme == "dark"), file
    assert errors == []
    assert [request for request in requests if not request.startswith("file:")] == []
    tab.context.close()


def test_the_search_works_from_files(site, browser):
    tab = browser.new_context().new_page()
    errors = []
    tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    tab.goto((site.root / "index.html").as_uri())
    tab.wait_for_url("**/README.html")
    tab.get_by_role("textbox", name="Search").fill("deletion_insertion")
    tab.keyboard.press("Enter")
    tab.get_by_role("link", name="bort.measure.deletion_insertion", exact=True).click()
    assert tab.url.endswith("docs/api/measure.html#bort.measure.deletion_insertion")
    assert errors == []
    tab.context.close()
