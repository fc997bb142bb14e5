"""The page: of runs of all kinds and of networks without a run, and opened in a browser."""

import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
import torch
from torch import nn

import bort.report
from bort import measure, nets
from bort.data import View
from bort.measure import COLUMNS
from bort.report import FIGURES, make
from bort.subject import Missing, Subject, Training, resolve
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


def assert_complete(made, missing, folder):
    """All figures but the missing ones, which are listed with their reasons; curves over pulls take several runs."""
    missing = missing - {"pulls"}
    assert set(made.missing) == missing
    files = made.write(folder / "report.html")
    assert len(files) == 1 + 2 * (len(FIGURES) - 1 - len(missing))
    text = files[0].read_text()
    assert 'id="audit"' in text
    left_out = text[text.index('id="part-missing"') :] if missing else ""
    for name, why in made.missing.items():
        assert escape(FIGURES[name].title) in left_out
        assert escape(why) in left_out


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
    assert "accuracy: test images whose class is predicted" in report.page, "that it is not known is said"
    assert model.training, "it is left as it was"


@pytest.mark.slow
def test_a_plain_model_with_images(tmp_path):
    """With images and a view everything can be shown, except how it was trained."""
    view = View(12, 3, (0.5,) * 3, (0.25,) * 3, tuple("abcd"))
    facts = {"network": "mine", "trained by": "somebody else"}
    report = make([Subject("plain", Classifier(), view, images, facts=facts)], sizes=SMALL)
    assert_complete(report, {"training"}, tmp_path)
    assert "somebody else" in report.page


def rows_of(html):
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]


def section(text, name):
    """The HTML of a section of the page."""
    start = text.index(f'<section id="{name}">')
    return text[start : text.index("</section>", start)]


def test_only_facts_that_differ_are_unfolded(subjects):
    """A fact that only one has stands where it has it, and "–" in the other's column."""
    one, other = (
        Subject(subject.name, subject.model, facts={"network": "lenet", **facts, "seed": "0"})
        for subject, facts in zip(subjects, ({"momentum": "0.9"}, {"λ": "0.1", "decay": "0"}), strict=True)
    )
    differing, _, same = section(make([one, other]).page, "how").partition("<details>")
    assert rows_of(differing)[1:] == [["λ", "–", "0.1"], ["decay", "–", "0"], ["momentum", "0.9", "–"]]
    assert "2 more settings, the same for all" in same
    assert rows_of(same)[1:] == [["network", "lenet"], ["seed", "0"]]
    alone = section(make([one]).page, "how")
    assert "<details>" not in alone
    assert [row[0] for row in rows_of(alone)[1:]] == ["network", "momentum", "seed"]


def test_the_audit_is_made_of_the_columns(subjects):
    text = section(make([Subject("plain", subjects[0].model)]).page, "audit")
    layers = list(measure.audit(subjects[0].model))
    assert rows_of(text) == [[c.title for c in COLUMNS], *([c.show(layer) for c in COLUMNS] for layer in layers)]
    assert re.findall(r"<dt>(.*?)</dt>", text) == [c.title for c in COLUMNS]


def test_verdicts_come_first_and_trainings_last(page):
    text = page[0].read_text()
    places = [
        text.index(f'id="{name}"')
        for name in ("verdicts", "part-images", "part-layers", "audit", "part-training", "how")
    ]
    assert places == sorted(places)
    assert text.index("<nav") > places[0]
    assert text.index('id="training"') > places[4]


def test_contents_are_titles_in_groups(page, report):
    contents = re.search(r"<nav.*?</nav>", page[0].read_text(), re.DOTALL)[0]
    links = dict(re.findall(r'<a href="#([^"]+)">(.*?)</a>', contents))
    assert {name: title for name, title in links.items() if name in FIGURES} == {
        illustration.name: escape(illustration.title) for illustration in report.illustrations
    }
    assert links["part-images"] == "What to look at"


def test_the_papers_numbers_and_no_labels(page, report):
    text = page[0].read_text()
    for illustration in report.illustrations:
        assert f"<small>{illustration.paper}</small></h3>" in section(text, illustration.name)
    assert not re.search(r"\b(fig|tab|sec):", text)


def test_every_figure_says_how_many(report):
    for illustration in report.illustrations:
        assert re.search(r"\d+ (test )?(images?|layers?|epochs?|pairs?)\b", illustration.look), illustration.look


def test_the_table_of_verdicts(report):
    table = section(report.page, "verdicts")
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    assert len(rows) == 1 + len(report.verdicts) == 9
    for row, verdict in zip(rows[1:], report.verdicts, strict=True):
        assert escape(verdict.claim) in row
        for estimate in verdict.estimates.values():
            assert f"<b>{estimate.shown}</b>" in row
            assert estimate.details[-1].startswith("n = ")
            assert escape(estimate.details[-1]) in row
    assert "another seed may change a number" in table


@pytest.mark.slow
def test_outcomes_have_a_sign_and_a_colour(subjects):
    pair = [replace(subjects[0], training=Training(0.0)), subjects[1]]
    made = make(pair, sizes=SMALL)
    outcomes = [comparison.outcome for verdict in made.verdicts for comparison in verdict.comparisons]
    table = section(made.page, "verdicts")
    shown = re.findall(r'<b class="(\w+)">(.) ([a-z ]+)</b>', table)
    signs = {"held": ("held", "✓"), "did not hold": ("failed", "✗"), "not decided": ("open", "?")}
    assert shown == [(*signs[outcome], outcome) for outcome in outcomes]
    assert f"{outcomes.count('held')} of 8 claims held" in table


def test_runs_that_nothing_is_claimed_of(report):
    """Both are trained with the constraint: differences, and no outcome."""
    table = section(report.page, "verdicts")
    assert "The paper claims nothing of these trainings beside each other" in table
    assert "✓" not in table


def test_nothing_to_report():
    with pytest.raises(ValueError, match="a report needs a subject"):
        make([])


@pytest.mark.parametrize("is_complete", [True, False])
def test_anchors_and_identifiers_are_unique(report, is_complete):
    text = report.page if is_complete else make([Subject("plain", Classifier())]).page
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    assert targets <= set(ids)
    assert len(text) < 2**20


def test_every_figure_in_two_forms(page):
    names = {Path(file).name for file in page[1]}
    assert len(names) == 21
    assert {"ratio.png", "ratio.svg", "saliency.png", "adversaries.svg"} <= names
    for file in page[1][1:]:
        content = file.read_bytes()
        assert content.startswith(b"\x89PNG" if file.suffix == ".png" else b"<?xml")


def test_a_report_of_models(tmp_path):
    models = {"a": nets.create("lenet"), "b": nets.create("lenet")}
    written = bort.report.write(models, torch.rand(6, 1, 28, 28), tmp_path / "own.html", sizes=SMALL)
    page = (tmp_path / "own.html").read_text()
    assert written.page == page
    assert "LeNet" in page
    assert {"reconstruction", "saliency", "sigma"} <= {illustration.name for illustration in written.illustrations}
    with pytest.raises(ValueError, match="is a folder; name the page"):
        bort.report.write(models, out=tmp_path)


def test_whether_an_image_may_have_several_classes_is_passed_on(runs, tmp_path):
    with pytest.raises(ValueError, match="multi_label True: a run is trained with one class an image"):
        bort.report.write(runs[0], out=tmp_path / "report.html", multi_label=True)


def test_a_report_is_written_by_a_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert bort.report.Report("<!doctype html>", [], {}).write("mine.html") == [Path("mine.html")]
    assert Path("mine.html").read_text() == "<!doctype html>"
