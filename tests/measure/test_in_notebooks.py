"""What audits, deletion curves and evaluations show in a notebook and in a terminal."""

import pickle
import re
import warnings
from base64 import b64decode
from html import unescape
from xml.etree import ElementTree

import pytest
import torch

from bort import measure
from tests.measure.test_columns import AUDIT, TEXT


def table(page):
    """The cells of the one table in a piece of HTML."""
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]


def figure(page):
    """The one figure in it, as XML."""
    (content,) = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]*)" alt="[^"]+">', page)
    return b64decode(content).decode()


def test_an_audit():
    page = AUDIT._repr_html_()
    assert table(page) == [
        [column.title for column in measure.COLUMNS],
        *([column.show(layer) for column in measure.COLUMNS] for layer in AUDIT),
    ]
    assert [unescape(title) for title in re.findall(r'title="(.*?)"', page)] == [c.meaning for c in measure.COLUMNS]
    assert AUDIT.html("mine & yours") in page.replace('"Audit"', '"mine &amp; yours"')
    assert f"{AUDIT!r}\n" == TEXT, "a terminal shows the table"


def result(score="relative", missing=()):
    curves = torch.tensor([[1.0, 0.5, 0.0], [0.8, 0.4, 0.2]])
    areas = torch.tensor([0.5, 0.45])
    areas[list(missing)] = torch.nan
    return measure.DeletionInsertion(curves, curves.flip(1), areas, areas + 0.25, score, ("zero", "zero"))


def test_deletion_and_insertion():
    page = result()._repr_html_()
    assert "Mean areas by the relative logit, 2 of 2 images: deletion 0.475 (smaller is better)" in page
    assert "insertion 0.725 (larger is better)" in page
    svg = figure(page)
    ElementTree.fromstring(svg)
    assert "relative logit" in svg
    assert "curves" not in repr(result()), "which are long"


def test_deletion_and_insertion_without_a_score():
    assert "1 of 2 images: deletion 0.500" in result(missing=[1])._repr_html_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = result(missing=[0, 1])._repr_html_()
    assert "None of the 2 images has an area by the relative logit." in page
    assert "<img" not in page


def test_a_score_of_ones_own():
    def margin(logits, classes):
        return logits[:, 0]

    page = result(margin)._repr_html_()
    assert "Mean areas by the margin" in page
    assert "margin" in figure(page)


def test_evaluations():
    scores = {score: result(score) for score in measure.SCORES}
    one, other = (measure.Evaluation(name, torch.rand(2, 3, 3), scores, 0.1) for name in ("<sat>", "cam"))
    both = measure.Evaluations({"<sat>": one, "cam": other})
    page = both._repr_html_()
    assert table(page) == [
        ["method", *measure.AREA_TITLES],
        ["&lt;sat&gt;", *["0.475", "0.725"] * 3],
        ["cam", *["0.475", "0.725"] * 3],
    ]
    assert "&lt;sat&gt;" in figure(page)
    assert "<sat>" not in page
    assert one._repr_html_() == measure.Evaluations({"<sat>": one})._repr_html_()
    lines = str(both).splitlines()
    assert re.split(r"  +", lines[0]) == ["method", *measure.AREA_TITLES]
    assert lines[3].split() == ["cam", *["0.475", "0.725"] * 3]
    assert "No method" in measure.Evaluations()._repr_html_()


def test_evaluations_are_a_dict(net, x):
    evaluations = measure.evaluate(net, x, ["cam"], steps=4)
    assert isinstance(evaluations, dict)
    assert evaluations == dict(evaluations)
    again = pickle.loads(pickle.dumps(evaluations))
    assert type(again) is measure.Evaluations
    assert str(again) == str(evaluations)
    assert torch.equal(again["cam"].maps, evaluations["cam"].maps)


@pytest.mark.filterwarnings("ignore:.*is the same number everywhere")
def test_what_could_not_be_measured_is_said():
    scores = {score: result(score, missing=[0, 1] if score == "relative" else ()) for score in measure.SCORES}
    flat = measure.Evaluations(cam=measure.Evaluation("cam", torch.zeros(2, 3, 3), scores, 0.1))
    page = flat._repr_html_()
    sentences = measure.notes(flat)
    assert len(sentences) == 2
    for sentence in sentences:
        assert sentence in unescape(page)
    assert table(page)[1][-2:] == ["–", "–"]
