"""What is measured of a subject: once, and of any model."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from bort import explain, measure
from bort.data import View
from bort.report import Measured, Missing, SampleSizes, draw
from bort.report._measured import shared_methods
from bort.subject import Subject, of_models
from bort.subject._image_set import InMemory
from tests.report.sizes import SMALL


class Counting(nn.Module):
    """A network that counts its passes; two convolutions with maps."""

    def __init__(self):
        super().__init__()
        self.passes = 0
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        self.passes += 1
        return self.head(self.body(x).amax(dim=(2, 3)))


def examples(count):
    return torch.rand(30, 1, 8, 8, generator=torch.Generator().manual_seed(0))[:count], torch.arange(30)[:count] // 10


@pytest.fixture
def measured():
    return Measured(Subject("counting", Counting().train(), View(8, 1, (0.5,), (0.5,)), examples), SMALL)


def test_methods_asked_for_one_after_another(measured):
    """`evaluate(["cam"])` and then `evaluate(["sat"])` gave cam in version 0.1.0."""
    first = measured.evaluate(["cam"])
    second = measured.evaluate(["sat"])
    assert list(first) == ["cam"]
    assert list(second) == ["sat"]
    x = measured.images(SMALL.evaluated)
    assert torch.equal(second["sat"].maps, explain.sat(measured.model, x, k=SMALL.features))
    assert torch.equal(first["cam"].maps, explain.cam(measured.model, x))


def test_each_method_is_computed_once(measured):
    first = measured.evaluate(["cam", "sat"])
    passes = measured.model.passes
    again = measured.evaluate(["sat", "cam"])
    assert list(again) == ["sat", "cam"], "in the order that is asked for"
    assert all(again[name] is first[name] for name in again)
    assert measured.model.passes == passes
    more = measured.evaluate(["cam", "ig"])
    assert more["cam"] is first["cam"]
    assert more["ig"].method == "ig"


def test_probabilities_of_a_network_for_several_classes(measured):
    several = Measured(replace(measured.subject, multi_label=True), SMALL)
    curves = several.evaluate(["cam"])["cam"].scores["probability"].deletion_curves
    x = measured.images(SMALL.evaluated)
    evaluated = measure.evaluate(measured.model, x, ["cam"], multi_label=True, warn=False)
    assert torch.equal(curves, evaluated["cam"].scores["probability"].deletion_curves)
    assert not torch.equal(curves, measured.evaluate(["cam"])["cam"].scores["probability"].deletion_curves)


def test_progress_is_named_after_the_subject(measured):
    calls = []
    measured.evaluate(["rise"], lambda *call: calls.append(call))
    (what, done, total) = calls[-1]
    assert (what, done) == ("counting: rise", total)


def test_images_of_all_classes_come_first(measured, subjects):
    assert measured.labels(5).tolist() == [0, 1, 2, 0, 1]
    digits = Measured(subjects[0], SampleSizes(measured=50))
    assert sorted(digits.labels(10).tolist()) == list(range(10))


def test_the_order_is_always_the_same(measured, subjects):
    again = Measured(measured.subject, SMALL)
    assert torch.equal(measured.images(12), again.images(12))
    data = torch.rand(200, 1, 8, 8)
    for subject in (subjects[0], *of_models(Counting(), data, labels=torch.arange(200) // 20)):
        few, usual, many = (Measured(subject, SampleSizes(measured=n, pairs=n)) for n in (5, 64, 150))
        for other in (usual, many):
            assert torch.equal(few.images(5), other.images(5)), "however many are asked for"
        assert torch.equal(usual.images(40), many.images(40))
        assert torch.equal(many.read([7, 3])[0], many.images(8)[[7, 3]])


def test_every_image_has_one_place_in_the_order():
    labels = torch.arange(200) // 20
    (subject,) = of_models(Counting(), torch.rand(200, 1, 8, 8), labels=labels)
    order = Measured(subject).order
    assert sorted(order.tolist()) == list(range(200))
    assert sorted(order[:64].tolist()) == [n * 200 // 64 for n in range(64)], "the first are spread evenly"
    assert sorted(labels[order[64:74]].tolist()) == list(range(10)), "behind them the classes come in turn again"


def test_images_are_read_when_they_are_needed():
    """A report of 64 images does not read a test set of thousands."""

    class Photographs:
        def __init__(self):
            self.targets, self.read = [n % 3 for n in range(1000)], set()

        def __len__(self):
            return 1000

        def __getitem__(self, n):
            self.read.add(n)
            return torch.full((1, 8, 8), n / 1000), n % 3

    images = Photographs()
    (subject,) = of_models(Counting(), images)
    Measured(subject).images(64)
    assert len(images.read) == 64


def test_the_images_of_two_subjects_are_in_the_order_of_the_first():
    """The second one knows no classes, and asks for fewer images."""
    images, labels = torch.rand(300, 1, 2, 2), torch.arange(300) % 7
    first, second = (
        Subject("some", Counting(), examples=InMemory(images, own)) for own in (labels, torch.full_like(labels, -1))
    )
    before = Measured(first, SampleSizes(measured=100))
    assert torch.equal(before.images(80), Measured(second, SampleSizes(measured=80), before).images(80))


def test_answers():
    """1 right, 0 wrong, -1 not known: of a network that always says class 1."""

    def some(count):
        return torch.zeros(5, 1, 8, 8)[:count], torch.tensor([1, 0, -1, 1, 2])[:count]

    model = Counting()
    nn.init.zeros_(model.head.weight)
    model.head.bias.data = torch.tensor([0.0, 1.0, 0.0])
    subject = Subject("one", model, examples=some)
    assert Measured(subject).answers.tolist() == [1, 0, -1, 1, 0]
    assert Measured(subject, SampleSizes(tested=2)).answers.tolist() == [1, 0]
    unknown = Subject("one", model, examples=lambda count: (some(5)[0], torch.full((5,), -1)))
    with pytest.raises(Missing, match="the classes of the test images are not known"):
        _ = Measured(unknown).answers


@pytest.mark.parametrize("labels", [[0, 1, 2, 0], [0, 0, 0, 1], [3, 3, 3, 3, 1, 2]])
def test_the_target_of_a_pair_is_the_next_image_of_another_class(labels):
    images = torch.rand(len(labels), 1, 8, 8)
    measured = Measured(Subject("some", Counting(), examples=lambda _: (images, torch.tensor(labels))))
    ordered = measured.labels(len(labels)).tolist()
    sources, targets = measured.pairs
    assert sources == tuple(range(len(labels)))
    for source, target in zip(sources, targets, strict=True):
        passed = [ordered[(source + step) % len(ordered)] for step in range((target - source) % len(ordered))]
        assert set(passed) == {ordered[source]} != {ordered[target]}


def test_pairs_of_images_whose_classes_are_not_known():
    measured = Measured(Subject("some", Counting(), examples=lambda _: (torch.rand(3, 1, 8, 8), torch.full((3,), -1))))
    assert measured.pairs == ((0, 1, 2), (1, 2, 0))


def test_the_mode_of_the_model_does_not_matter(measured):
    assert measured.model.training
    predictions = measured.predictions(5)
    assert measured.model.training, "it is left as it was"
    measured.model.eval()
    assert torch.equal(measured.predictions(5), predictions)


def test_as_many_features_as_the_layer_has():
    measured = Measured(Subject("counting", Counting(), examples=examples), SampleSizes(features=64))
    assert (measured.layer, measured.channels, measured.features) == ("body", 8, 8)
    assert Measured(measured.subject, SampleSizes(features=5)).features == 5


def test_without_examples_the_audit_is_of_the_weights_alone():
    measured = Measured(Subject("counting", Counting()))
    assert [layer.ratio for layer in measured.audit] == [None] * 3
    assert measured.mean_ratio is None
    with pytest.raises(Missing, match="counting has no test images"):
        measured.images(1)
    with pytest.raises(Missing, match="it is not known how counting sees an image"):
        _ = measured.view


def test_a_network_without_a_map():
    """It has no top layer, and is looked at with the methods that ask for none."""
    view = View(8, 1, (0.5,), (0.5,))
    flat = Measured(Subject("flat", nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), view, examples), SMALL)
    with pytest.raises(Missing, match=r"flat: .* has no layer with a feature map"):
        _ = flat.layer
    assert flat.methods == [name for name in explain.names() if name not in ("cam", "sat")]
    both = [Measured(Subject("counting", Counting(), view, examples), SMALL), flat]
    assert shared_methods(both) == flat.methods
    drawn = draw("saliency", both)
    assert len(drawn.figure.axes) == 6 * (1 + len(flat.methods)), "three images, two networks"
    assert "SAT" not in drawn.look
    with pytest.raises(Missing, match="has no layer with a feature map"):
        draw("reconstruction", both)
