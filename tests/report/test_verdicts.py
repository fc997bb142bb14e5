"""Verdicts: against numbers computed by hand, and what they decide."""

import math
import statistics
from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import nn

from bort import explain, invert, measure, nets, penalty
from bort._intervals import Interval
from bort.report import Measured, make, measured
from bort.report._claims import CLAIMS, residual_to
from bort.report._verdict import outcome_of
from bort.report._verdicts import baseline_of, is_claimed, verdicts
from bort.subject import Subject, Training
from tests.report.sizes import SMALL

BORT, PLAIN = Training(0.1, 0.01), Training(0.0, 0.01)


class Told(nn.Module):
    """A network that is told its answers: pixel ``which`` of an image says whether it is right."""

    def __init__(self, which):
        super().__init__()
        self.which, self.head = which, nn.Linear(2, 2)

    def forward(self, x):
        right = x[:, 0, 0, self.which]
        return torch.stack([right, 1 - right], dim=1)


def told(answers, trainings=(PLAIN, BORT)):
    """Two subjects with so many images that (both, only the first, only the second, neither) recognise."""
    pixels = torch.tensor(
        [pair for pair, n in zip(((1, 1), (1, 0), (0, 1), (0, 0)), answers, strict=True) for _ in range(n)]
    )
    images, labels = pixels.float().view(-1, 1, 1, 2), torch.zeros(len(pixels), dtype=torch.long)
    return measured(
        [
            Subject(name, Told(which), examples=lambda count: (images[:count], labels[:count]), training=training)
            for which, (name, training) in enumerate(zip(("first", "second"), trainings, strict=True))
        ]
    )


def verdict(subjects, start):
    (found,), _ = verdicts(subjects, [claim for claim in CLAIMS if claim.claim.startswith(start)])
    return found


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ((900, 40, 30, 30), "not decided"),
        ((900, 3, 43, 30), "held"),
        ((950, 3, 3, 40), "held"),  # the same accuracy, to within a point
        ((900, 60, 10, 30), "did not hold"),
        ((3, 0, 1, 0), "not decided"),
    ],
)
def test_accuracy_against_numbers_by_hand(answers, outcome):
    row = verdict(told(answers), "Accuracy")
    both, only_first, only_second, _ = answers
    count = sum(answers)
    for name, right in (("first", both + only_first), ("second", both + only_second)):
        estimate, expected = row.estimates[name], stats.binomtest(right, count).proportion_ci(0.95, "wilson")
        assert estimate.value == pytest.approx(right / count)
        assert (estimate.interval.low, estimate.interval.high) == pytest.approx((expected.low, expected.high))
        assert estimate.count == count
        assert estimate.shown == f"{right / count:.1%}"
        assert f"n = {count:,} images" in estimate.details
    (comparison,) = row.comparisons
    assert (comparison.name, comparison.baseline, comparison.outcome) == ("second", "first", outcome)
    assert comparison.difference == pytest.approx((only_second - only_first) / count)
    assert comparison.interval.low < comparison.difference < comparison.interval.high


def test_the_images_of_the_accuracy_are_paired():
    """The same two accuracies: networks with the same mistakes differ by nothing, others may."""
    alike, unlike = verdict(told((900, 0, 0, 100)), "Accuracy"), verdict(told((810, 90, 90, 10)), "Accuracy")
    assert alike.estimates == unlike.estimates
    widths = [v.comparisons[0].interval.high - v.comparisons[0].interval.low for v in (alike, unlike)]
    assert 3 * widths[0] < widths[1]


@pytest.mark.parametrize(
    ("interval", "limit", "outcome"),
    [
        (Interval(0.1, 0.2), 0.0, "held"),
        (Interval(-0.2, -0.1), 0.0, "did not hold"),
        (Interval(-0.1, 0.2), 0.0, "not decided"),
        (Interval(-0.005, 0.02), -0.01, "held"),
        (Interval(0.2, 0.4), 0.5, "did not hold"),
        (None, 0.0, "not decided"),
    ],
)
def test_what_an_interval_decides(interval, limit, outcome):
    assert outcome_of(interval, limit) == outcome


@pytest.mark.parametrize(
    ("trainings", "baseline", "claimed"),
    [
        ((PLAIN, BORT), 0, True),
        ((BORT, PLAIN), 1, True),  # whatever the order
        ((None, None), 0, True),  # which has the constraint is not known
        ((BORT, None), 1, True),
        ((PLAIN, None), 0, True),
        ((PLAIN, PLAIN), 0, False),
        ((BORT, BORT), 0, False),
    ],
)
def test_which_is_the_baseline_and_what_is_claimed(trainings, baseline, claimed):
    subjects = told((8, 1, 1, 1), trainings)
    base, other = subjects[baseline], subjects[1 - baseline]
    assert baseline_of(subjects) is base
    assert is_claimed(base, other) is claimed
    (comparison,) = verdict(subjects, "Accuracy").comparisons
    assert (comparison.name, comparison.baseline) == (other.name, base.name)
    assert (comparison.outcome is not None) is claimed


def test_three_subjects_are_compared_with_one():
    first, second = told((8, 1, 1, 1))
    third = Measured(replace(second.subject, name="third"), beside=first)
    row = verdict([second, first, third], "Accuracy")
    assert [(c.name, c.baseline) for c in row.comparisons] == [("second", "first"), ("third", "first")]


def test_claims_that_cannot_be_measured_have_a_reason():
    said, unsaid = verdicts(measured([Subject("a", nets.create("lenet")), Subject("b", nets.create("lenet"))]))
    assert [v.claim for v in said] == ["Layers are nearer to orthogonality"]
    assert len(unsaid) == 7
    assert unsaid["Accuracy is not lost, or by less than a point"].startswith("a has no test images")


def test_of_one_subject_there_are_numbers_only(subjects):
    said, unsaid = verdicts([Measured(subjects[0], SMALL)])
    assert len(said) == 8
    assert unsaid == {}
    assert all(v.comparisons == () and list(v.estimates) == ["plain"] for v in said)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_the_distance_to_another_scale(scale):
    model = nets.create("lenet").double()
    for layer in measure.audit(model):
        weight = dict(model.named_parameters())[layer.name]
        expected = penalty.residual(weight.detach(), scale=scale).item() / scale
        assert residual_to(layer, scale) == pytest.approx(expected, rel=1e-5)


def test_layers_are_counted(subjects):
    """Each layer of the second is made orthogonal but one."""
    model = nets.create("lenet")
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim > 1 and not name.startswith("conv1"):
                nn.init.orthogonal_(p)
    before = nets.create("lenet")
    before.conv1.load_state_dict(model.conv1.state_dict())
    row = verdict(
        measured([Subject("before", before, training=PLAIN), Subject("after", model, training=BORT)]), "Layers are"
    )
    (comparison,) = row.comparisons
    assert comparison.details[0] == "smaller in 4 of 5 layers"
    assert comparison.outcome == "not decided", "Wilson's interval of 4 of 5 contains a half"
    assert row.estimates["after"].value == pytest.approx(0, abs=1e-5)
    residuals = [layer.residual for layer in measure.audit(before)]
    assert row.estimates["before"].value == pytest.approx(statistics.median(residuals), rel=1e-5)


def test_a_target_of_another_scale_is_the_one_that_counts():
    model = nets.create("lenet")
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                nn.init.orthogonal_(p, gain=math.sqrt(2))
    subjects = measured(
        [Subject("before", nets.create("lenet")), Subject("s 2", model, training=Training(0.1, scale=2.0))]
    )
    row = verdict(subjects, "Layers are")
    assert row.estimates["s 2"].value == pytest.approx(0, abs=1e-5)
    assert row.comparisons[0].outcome == "held"


@pytest.fixture(scope="module")
def compared(runs):
    """The two runs, of which the first is taken for a baseline."""
    from bort.subject import resolve_all

    first, second = resolve_all(runs)
    return measured([replace(first, training=PLAIN), second], SMALL)


def test_reconstructions_against_numbers_by_hand(compared):
    for start, k in (("Reconstructions", None), ("… and those", 8)):
        row, values = verdict(compared, start), []
        for subject in compared:
            x = subject.images(SMALL.measured)
            values.append(invert.correlation(invert.reconstruct(subject.model, x, "conv5", k), x).double())
            expected = stats.ttest_1samp(values[-1], 0).confidence_interval(0.95)
            estimate = row.estimates[subject.name]
            assert (estimate.interval.low, estimate.interval.high) == pytest.approx((expected.low, expected.high))
            assert estimate.count == 12
        expected = stats.ttest_rel(values[1], values[0]).confidence_interval(0.95)
        (comparison,) = row.comparisons
        assert (comparison.interval.low, comparison.interval.high) == pytest.approx((expected.low, expected.high))


def test_deletion_and_insertion_against_numbers_by_hand(compared):
    row = verdict(compared, "Saliency maps")
    ones, others = (subject.evaluate(explain.names()) for subject in compared)
    better = worse = 0
    for method in explain.names():
        for end, sign in (("deletion", -1), ("insertion", 1)):
            one, other = (getattr(e[method].scores["relative"], end).double() for e in (ones, others))
            interval = stats.ttest_1samp(sign * (other - one), 0).confidence_interval(0.95)
            better, worse = better + (interval.low > 0), worse + (interval.high < 0)
    (comparison,) = row.comparisons
    assert comparison.details[0] == f"better in {better} of 12, worse in {worse}"
    assert comparison.outcome == ("held" if better > 6 else "did not hold" if worse > 6 else "not decided")


def test_adversaries_are_judged_by_their_own_success(compared):
    row = verdict(compared, "Transplanted")
    for subject in compared:
        made = subject.adversaries(compared[0].pairs)
        estimate = row.estimates[subject.name]
        assert estimate.count == made.pairs
        assert estimate.value == pytest.approx(made.image_success)
    (comparison,) = row.comparisons
    interval = row.estimates[compared[1].name].interval
    assert comparison.outcome == outcome_of(interval, 0.5)


def test_a_report_has_its_verdicts(compared):
    report = make(compared)
    assert [v.claim for v in report.verdicts] == [v.claim for v in verdicts(compared)[0]]
