"""The page: of runs of all kinds and of networks without a run, and opened in a browser."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from bort import measure, nets, report
from bort.data import View
from bort.measure import COLUMNS
from bort.report import FIGURES, make
from bort.subject import Missing, Subject, resolve, resolve_all
from bort.train.recipes import Data, Net
from tests.pages import NARROW
from tests.report.sizes import SMALL
from tests.train.small import fit

ONE_EPOCH = replace(NARROW, epochs=1)
OTHER_KINDS = {
    "colour": (
        replace(
            ONE_EPOCH,
            net=Net("acnn-small", {"width": 0.02, "narrowest": 4}),
            data=Data("tests.report.networks:coloured", 32, 3),
        ),
        set(),
    ),
    "one class": (replace(ONE_EPOCH, data=Data("tests.report.networks:one_class", 28, 1)), {"adversaries"}),
    "vit": (
        replace(
            ONE_EPOCH,
            net=Net("tests.report.networks:vit"),
            data=Data("tests.report.networks:padded", 32, 1),
            optim=replace(ONE_EPOCH.optim, groups="modules"),
        ),
        set(),
    ),
}


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    calls = []
    file = tmp_path_factory.mktemp("page") / "report.html"
    report = make(resolve_all(runs), sizes=SMALL, say=lambda *call: calls.append(call))
    written = report.write(file)
    assert calls[-1] == ("report", 10, 10)
    assert report.missing == {}
    return file, written


def assert_complete(report, missing, folder):
    """All figures but the missing ones, which are listed with their reasons."""
    assert set(report.missing) == missing
    files = report.write(folder / "report.html")
    assert len(files) == 1 + 2 * (len(FIGURES) - len(missing))
    text = files[0].read_text()
    assert 'id="audit"' in text
    for name, why in report.missing.items():
        assert f"<li>{name}: " in text
        assert len(why) > 10


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "missing"), OTHER_KINDS.values(), ids=OTHER_KINDS)
def test_runs_of_other_kinds(recipe, missing, tmp_path):
    run = fit(tmp_path / "run", recipe)
    assert_complete(make([resolve(run.path)], sizes=SMALL), missing, tmp_path)


def test_a_run_whose_images_are_not_at_hand(subjects, tmp_path):
    def examples(count):
        raise Missing("the test images of plain are not at hand: there is no such folder")

    report = make([replace(subjects[0], examples=examples)], sizes=SMALL)
    assert_complete(report, set(FIGURES) - {"training", "gram", "sigma"}, tmp_path)


class Classifier(nn.Module):
    """A network that no run has trained."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 12, 3), nn.ReLU())
        self.dropout = nn.Dropout()
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        return {"logits": self.head(self.dropout(self.features(x).amax(dim=(2, 3))))}


def images(count):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(16, 3, 12, 12, generator=generator)[:count], torch.arange(16)[:count] % 4


def test_a_plain_model(tmp_path):
    """Nothing but a name and an nn.Module: what can be said of its weights."""
    model = Classifier()
    report = make([Subject("plain", model)], sizes=SMALL)
    assert_complete(report, set(FIGURES) - {"gram", "sigma"}, tmp_path)
    assert "Classifier" in report.page, "there are no facts, but the class has a name"
    assert 'id="how"' not in report.page
    assert "<strong>–</strong>" in report.page, "its accuracy is not known"
    assert model.training, "it is left as it was"


@pytest.mark.slow
def test_a_plain_model_with_images(tmp_path):
    """With images and a view everything can be shown, except how it was trained."""
    view = View(12, 3, (0.5,) * 3, (0.25,) * 3, tuple("abcd"))
    facts = {"network": "mine", "trained by": "somebody else"}
    report = make([Subject("plain", Classifier(), view, images, facts)], sizes=SMALL)
    assert_complete(report, {"training"}, tmp_path)
    assert "somebody else" in report.page


def test_facts_of_different_subjects_side_by_side(subjects):
    """A fact that only one has stands where it has it, and "–" in the other's column."""
    one, other = (
        Subject(subject.name, subject.model, facts={"network": "lenet", **facts, "seed": "0"})
        for subject, facts in zip(subjects, ({"momentum": "0.9"}, {"λ": "0.1", "decay": "0"}), strict=True)
    )
    text = make([one, other]).page
    table = text[text.index('<section id="how">') : text.index("</section>")]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)]
    assert rows[1:] == [
        ["network", "lenet", "lenet"],
        ["λ", "–", "0.1"],
        ["decay", "–", "0"],
        ["momentum", "0.9", "–"],
        ["seed", "0", "0"],
    ]


def test_the_audit_is_made_of_the_columns(subjects):
    text = make([Subject("plain", subjects[0].model)]).page
    section = text[text.index('<section id="audit">') : text.index('<section id="gram">')]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", section)]
    layers = list(measure.audit(subjects[0].model))
    assert rows == [[c.title for c in COLUMNS], *([c.show(layer) for c in COLUMNS] for layer in layers)]
    assert re.findall(r"<dt>(.*?)</dt>", section) == [c.title for c in COLUMNS]


def test_nothing_to_report():
    with pytest.raises(ValueError, match="a report needs a subject"):
        make([])


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_in_a_browser(browser, page, scheme, width):
    messages, requests = [], []
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab.on("console", lambda message: messages.append(message.text))
    tab.on("pageerror", lambda error: messages.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(page[0].as_uri())
    assert messages == []
    assert [url for url in requests if not url.startswith("data:")] == [page[0].as_uri()], "no request leaves"
    assert tab.evaluate("document.documentElement.scrollWidth") <= width, "no overflow"
    pictures = tab.locator("svg[role=img]").all()
    assert len(pictures) == 10
    for picture in pictures:
        box = picture.bounding_box()
        assert box["width"] > 100
        assert box["height"] > 50
        assert len(picture.get_attribute("aria-label")) > 20
    ink = tab.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (_brightness(ink) > _brightness(paper)) == (scheme == "dark"), "figures follow the page's colours"
    assert _brightness(ink) != _brightness(paper)
    assert "<b>&$\\alpha$" in tab.locator("h1").inner_text()
    assert tab.locator("h1 b").count() == 0, "names are escaped"
    tab.close()


def _brightness(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def test_anchors_and_identifiers_are_unique(page):
    text = page[0].read_text()
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    assert targets <= set(ids)
    assert page[0].stat().st_size < 6 * 2**20


def test_every_figure_in_two_forms(page):
    names = {Path(file).name for file in page[1]}
    assert len(names) == 21
    assert {"ratio.png", "ratio.svg", "saliency.png", "adversaries.svg"} <= names
    for file in page[1][1:]:
        content = file.read_bytes()
        assert content.startswith(b"\x89PNG" if file.suffix == ".png" else b"<?xml")


def test_a_report_of_models(tmp_path):
    models = {"a": nets.create("lenet"), "b": nets.create("lenet")}
    written = report.write(models, torch.rand(6, 1, 28, 28), tmp_path / "own.html", sizes=SMALL)
    page = (tmp_path / "own.html").read_text()
    assert written.page == page
    assert "LeNet" in page
    assert {"reconstruction", "saliency", "sigma"} <= {illustration.name for illustration in written.illustrations}
    with pytest.raises(ValueError, match="is a folder; name the page"):
        report.write(models, out=tmp_path)
