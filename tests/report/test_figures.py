"""What figures say, against the numbers they are made of."""

import copy
from dataclasses import replace
from html import escape

import numpy as np
import pytest
from torch import nn

from bort import invert, measure, nets
from bort.pictures import to_svg
from bort.report import FIGURES, Measured, Missing, SampleSizes, curves, draw, make, resolve
from bort.subject import Subject
from tests.report.sizes import SMALL


@pytest.fixture
def measured(subjects):
    return [Measured(subject, SMALL) for subject in subjects]


def test_the_numbers_are_the_subjects_own(measured):
    looks = {name: draw(name, measured).look for name in ("reconstruction", "ratio", "sigma", "training")}
    for subject in measured:
        x = subject.images(SMALL.measured)
        back = invert.reconstruct(subject.model, x, "conv5")
        mean = np.mean([np.corrcoef(a.flatten(), b.flatten())[0, 1] for a, b in zip(back, x, strict=True)])
        assert f"{subject.name} {mean:.2f}" in looks["reconstruction"]
        ratios = list(measure.reconstruction_ratio(subject.model, x).values())
        assert f"{subject.name} {np.mean(ratios):.2f}" in looks["ratio"]
        audit = measure.audit(subject.model)
        low, high = min(layer.sigma[0] for layer in audit), max(layer.sigma[1] for layer in audit)
        assert f"{subject.name}: {low:.2f} to {high:.2f} over 6 layers" in looks["sigma"]
        assert f"{subject.subject.accuracy:.2%}" in looks["training"]


def test_figures_of_subjects_and_of_measured_ones_are_the_same(subjects, measured):
    one, other = draw("ratio", subjects, sizes=SMALL), draw("ratio", measured)
    assert one.look == other.look
    assert to_svg(one.figure) == to_svg(other.figure), "the same figure is the same file"


def test_every_figure_has_its_names():
    papers = [kind.paper for kind in FIGURES.values()]
    assert len(papers) == len(set(papers))
    for name, kind in FIGURES.items():
        aliases = (name, kind.label, kind.label.removeprefix("fig:"), kind.paper, kind.paper.removeprefix("Paper, "))
        assert {resolve(alias) for alias in aliases} == {name}
    assert resolve("fig:2_1_recon") == resolve("figure 4") == "reconstruction"


def test_an_unknown_figure_names_those_near_it():
    with pytest.raises(ValueError, match="no figure is called 'rato'; there are ratio"):
        resolve("rato")


def test_what_could_not_be_measured_is_said(subjects):
    """A head of zeros: constant maps, and no relative score."""
    model = copy.deepcopy(subjects[0].model)
    for p in model.head.parameters():
        nn.init.zeros_(p)
    measured = [Measured(replace(subjects[0], model=model), SMALL)]
    name = subjects[0].name
    assert f"{name}: 3 of 3 images have no relative score" in draw("deletion", measured).look
    assert f"{name}: The map of cam is the same number everywhere for 3 of 3 images" in draw("saliency", measured).look


def test_one_image_of_a_network_with_a_long_name(subjects):
    """The name has room beside the only picture: matplotlib would warn of pictures without a size."""
    subject = replace(subjects[0], name="a network with quite a long name")
    figure = draw("reconstruction", [subject], sizes=replace(SMALL, shown=1)).figure
    to_svg(figure)
    assert min(cell.get_window_extent().width for cell in figure.axes) > 80


def test_curves_lie_within_their_panels(measured):
    for cell in draw("deletion", measured).figure.axes:
        low, high = cell.get_ylim()
        for line in cell.get_lines():
            assert low <= min(line.get_ydata()) <= max(line.get_ydata()) <= high


def test_curves_by_any_score(measured):
    evaluations = {subject.name: subject.evaluate(["cam", "sat"]) for subject in measured}
    figure = curves(evaluations, "probability")
    assert [cell.get_title(loc="left") for cell in figure.axes] == ["CAM", "SAT, the paper's method"]
    assert figure.axes[0].get_ylabel() == "probability"
    drawn = figure.axes[1].get_lines()[0].get_ydata()
    expected = evaluations["plain"]["sat"].scores["probability"].deletion_curves.double().mean(dim=0)
    np.testing.assert_allclose(drawn, expected)
    with pytest.raises(ValueError, match="no method was evaluated"):
        curves({"plain": {}})


def test_fewer_evaluated_than_shown(subjects):
    figure = draw("saliency", subjects[:1], sizes=replace(SMALL, evaluated=1)).figure
    assert len(figure.axes) == 7, "one image and six maps"
    assert {text.get_text() for text in figure.texts} >= {"CAM", "SAT, the paper's method", "RISE"}


@pytest.mark.parametrize("name", ["cost$\\alpha$x", "a$\\bad$", "_run", "a#24292f", 'x id="y" z', "<b>&"])
def test_names_are_not_read_as_markup(subjects, name):
    """Whatever TeX, matplotlib, SVG or the page's own substitutions would read into them."""
    page = make([Subject(name, subjects[0].model), Subject("other", subjects[1].model)]).page
    section = page[page.index('<section id="sigma">') :]
    svg = section[section.index("<svg") : section.index("</svg>")]
    assert escape(name, quote=False) in svg.replace("\u200b", "").replace("&quot;", '"')


def test_missing_says_why(subjects):
    one_image = SampleSizes(pairs=1, measured=1, evaluated=1, shown=1)
    with pytest.raises(Missing, match="two classes"):
        draw("adversaries", subjects[:1], sizes=one_image)


def test_a_run_without_a_finished_epoch(subjects):
    with pytest.raises(Missing, match="no record of a finished epoch"):
        draw("training", [replace(subjects[0], history=())])
    both = [replace(subjects[0], history=()), subjects[1]]
    assert "plain" not in draw("training", both).look, "the other's curve is drawn"


def pulled(subject, name, pull, accuracy):
    """A subject of the same weights, as if it were trained with this pull."""
    return replace(
        subject, name=name, history=({"epoch": 1, "pull": pull, "accuracy": accuracy, "residual": 2 - accuracy},)
    )


def test_curves_over_pulls_go_through_the_means_of_their_runs(subjects):
    runs = [("a", 0.0, 0.4), ("b", 0.0, 0.5), ("c", 1.5, 0.7), ("d", 15.0, 0.6)]
    drawn = draw(
        "pulls",
        [replace(pulled(subjects[0], *run), facts={"held out": "each 10th"}) for run in runs]
        + [Subject("untrained", subjects[0].model)],
        sizes=SMALL,
    )
    assert drawn.figure.axes[0].get_title(loc="left") == "% of the held-out training images"
    accuracy, residual, gap, correlation = drawn.figure.axes
    marks, line = accuracy.get_lines()
    assert sorted(marks.get_ydata()) == pytest.approx([40, 50, 60, 70])
    assert list(line.get_ydata()) == pytest.approx([45, 70, 60])
    assert [label.get_text() for label in accuracy.get_xticklabels()] == ["0", "1.5", "15"]
    assert list(residual.get_lines()[1].get_ydata()) == pytest.approx([1.55, 1.3, 1.4])
    assert "The most accurate is c, with a pull of 1.5." in drawn.look
    measured = Measured(subjects[0], SMALL)
    expected = measured.reconstructions().correlations.mean().item()
    assert list(correlation.get_lines()[1].get_ydata()) == pytest.approx([expected] * 3)
    areas = [e.scores["relative"] for e in measured.evaluate(measured.methods).values()]
    expected = np.nanmean([(area.insertion - area.deletion).cpu() for area in areas])
    assert list(gap.get_lines()[1].get_ydata()) == pytest.approx([expected] * 3, rel=1e-4)


def test_figures_say_which_images_an_accuracy_is_of(subjects):
    """Held-out training images are no test images, and the settings were chosen on them."""
    runs = [
        pulled(replace(subjects[0], examples=None), *run) for run in (("a", 0, 0.4), ("b", 1.5, 0.5), ("c", 5, 0.6))
    ]
    held_out = [replace(run, facts={"held out": "each 10th"}) for run in runs]
    for chosen, words in (
        (runs, "test images"),
        (held_out, "held-out training images"),
        ([runs[0], *held_out[1:]], "images tested on"),
    ):
        drawn = draw("training", chosen)
        assert f"% of the {words}" in [axes.get_title(loc="left") for axes in drawn.figure.axes]
    assert "at 40.00% of all test images and" in drawn.look
    assert "at 50.00% of all held-out training images and" in drawn.look


def test_two_networks_have_no_curve_over_pulls_and_a_report_does_not_miss_it(subjects, monkeypatch):
    monkeypatch.setattr("bort.report._report.FIGURES", {"pulls": FIGURES["pulls"]})
    three = [pulled(replace(subjects[0], examples=None), name, 1.5, 0.4) for name in "abc"]
    assert "here are 1" in make(three).missing["pulls"]
    assert make(three[:2]).missing == {}


def test_two_pulls_make_no_curve(subjects):
    with pytest.raises(Missing, match=r"3 different pulls or more, such as 0, 1\.5 and 5 .*; here are 1"):
        draw("pulls", [pulled(subjects[0], "a", 1.5, 0.4), pulled(subjects[0], "b", 1.5, 0.5)])


def test_ratios_of_networks_with_other_shapes_under_the_same_names(subjects):
    """A dotted line is a layer's least ratio, and there is none where two networks have another one."""
    other = Subject("narrower", nets.create("acnn-small", width=0.02, narrowest=4), examples=subjects[0].examples)
    alone, both = (draw("ratio", chosen, sizes=SMALL).figure.axes[0] for chosen in (subjects[:1], [subjects[0], other]))
    assert 0 < len(both.collections) < len(alone.collections)


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="measured=-3: must be 1 or more"):
        SampleSizes(measured=-3)


@pytest.mark.parametrize(
    ("name", "new"),
    [("Amount", "SampleSizes"), ("Subject", "bort.subject.Subject"), ("subjects", "bort.subject.resolve_all")],
)
def test_names_of_version_0_1_0_name_the_new_ones(name, new):
    with pytest.raises(ImportError, match=f"is now .*{new}"):
        exec(f"from bort.report import {name}")
