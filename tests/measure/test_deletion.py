"""Deletion and insertion: closed forms on a sum classifier, ties, chunks, substrates."""

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import nn
from torch.nn import functional as F

from bort import explain, invert, measure


class Sum(nn.Module):
    """Two classes: the weighted sum of the pixels, and its negative."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        total = (x * self.weight).sum(dim=(1, 2, 3))
        return torch.stack([total, -total], dim=1)


@pytest.fixture
def model():
    return Sum(torch.ones(1, 4, 4, dtype=torch.float64))


def images(*values):
    return torch.tensor(values, dtype=torch.float64).view(len(values), 1, 4, 4)


def test_closed_form_of_a_flat_image(model):
    """16 equal pixels: the score falls in a straight line, and rises in one."""
    x = images([1.0] * 16)
    curves = measure.deletion_insertion(model, x, torch.rand(1, 4, 4), steps=16, score="logit")
    torch.testing.assert_close(curves.deletion_curves[0], torch.arange(16, -1, -1, dtype=torch.float64))
    torch.testing.assert_close(curves.insertion_curves[0], torch.arange(17, dtype=torch.float64))
    assert curves.deletion.item() == curves.insertion.item() == pytest.approx(8)
    relative = measure.deletion_insertion(model, x, torch.rand(1, 4, 4), steps=16)
    assert relative.means == pytest.approx((0.5, 0.5))


def test_closed_form_of_two_pixels(model):
    """All the sum is in two pixels. The perfect map takes 2 of 16 steps, the worst one leaves them to the end."""
    x = images([3.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.0])
    best = measure.deletion_insertion(model, x, x[:, 0], steps=16)
    worst = measure.deletion_insertion(model, x, -x[:, 0], steps=16)
    early, late = np.array([1.0, 0.25] + [0.0] * 15), np.array([1.0] * 15 + [0.75, 0.0])
    assert best.deletion.item() == pytest.approx(np.trapezoid(early) / 16)
    assert best.insertion.item() == pytest.approx(np.trapezoid(1 - early) / 16)
    assert worst.deletion.item() == pytest.approx(np.trapezoid(late) / 16)


def test_negative_areas_are_possible(model):
    """Pixels that speak for the class are removed first; what is left speaks against it. A probability could not say so."""
    x = images([2.0] * 8 + [-1.0] * 8)
    curves = measure.deletion_insertion(model, x, x[:, 0], steps=16)
    assert curves.deletion.item() < 0
    probability = measure.deletion_insertion(model, x, x[:, 0], steps=16, score="probability")
    assert probability.deletion.item() > 0


def test_probabilities(model):
    x = images([0.25] * 16)
    curves = measure.deletion_insertion(model, x, torch.rand(1, 4, 4), steps=4, score="probability")
    total = torch.tensor([4.0, 3.0, 2.0, 1.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(curves.deletion_curves[0], torch.sigmoid(2 * total))


def test_ties_go_in_reading_order(model):
    weight = torch.arange(16, dtype=torch.float64).view(1, 4, 4)
    curves = measure.deletion_insertion(Sum(weight), images([1.0] * 16), torch.zeros(1, 4, 4), steps=16, score="logit")
    expected = 120 - torch.cat([torch.zeros(1), torch.arange(16).cumsum(0)]).double()
    torch.testing.assert_close(curves.deletion_curves[0], expected)


def test_targets(model):
    x = images([1.0] * 16, [-1.0] * 16)
    free = measure.deletion_insertion(model, x, torch.rand(2, 4, 4), score="logit", steps=4)
    assert (free.deletion_curves[:, 0] == 16).all(), "each by the class it is taken for"
    fixed = measure.deletion_insertion(model, x, torch.rand(2, 4, 4), 0, score="logit", steps=4)
    assert fixed.deletion_curves[:, 0].tolist() == [16, -16]


def test_substrates(model):
    x = torch.rand(2, 1, 20, 20, dtype=torch.float64)
    net = Sum(torch.rand(1, 20, 20, dtype=torch.float64))
    mean = measure.deletion_insertion(
        net, x, torch.rand(2, 20, 20), deletion_to="mean", insertion_from="blur", score="logit"
    )
    flat = net(x.mean(dim=(2, 3), keepdim=True).expand_as(x)).amax(dim=1)
    torch.testing.assert_close(mean.deletion_curves[:, -1], flat)
    dirac = np.zeros((11, 11))
    dirac[5, 5] = 1
    kernel = torch.from_numpy(ndimage.gaussian_filter(dirac, 5))  # how RISE's authors make theirs
    blurred = F.conv2d(x, kernel[None, None], padding=5)
    torch.testing.assert_close(mean.insertion_curves[:, 0], net(blurred).amax(dim=1))
    assert mean.substrates == ("mean", "blur")


def test_in_chunks():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)).double()
    x, saliency = torch.randn(7, 3, 8, 8, dtype=torch.float64), torch.rand(7, 8, 8)
    whole = measure.deletion_insertion(net, x, saliency, steps=10)
    one = invert.Backtracker(net, "0", "gradient").trace(x[:1])
    progress = []
    for at_once in (1, 4, 22, 32):
        with explain.memory_budget(forward=at_once * one.largest):
            part = measure.deletion_insertion(net, x, saliency, steps=10, progress=lambda *call: progress.append(call))
        torch.testing.assert_close(part.deletion_curves, whole.deletion_curves)
        torch.testing.assert_close(part.insertion, whole.insertion)
    assert progress[-4:] == [(2, 7), (4, 7), (6, 7), (7, 7)], "32 at once are two images of 11 steps"


def test_against_a_loop():
    """RISE's published recipe, an image and a step at a time."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 36, 4)).double()
    x, saliency = torch.randn(2, 3, 6, 6, dtype=torch.float64), torch.rand(2, 6, 6)
    curves = measure.deletion_insertion(net, x, saliency, steps=9, score="probability")
    for n in range(2):
        order = np.argsort(-saliency[n].flatten().numpy(), kind="stable")
        label = net(x[n : n + 1]).argmax()
        image, scores = x[n].clone(), []
        for step in range(10):
            scores.append(net(image[None]).softmax(dim=1)[0, label].item())
            image.view(3, -1)[:, order[4 * step : 4 * step + 4]] = 0
        np.testing.assert_allclose(curves.deletion_curves[n].detach(), scores)
        assert curves.deletion[n].item() == pytest.approx((sum(scores) - scores[0] / 2 - scores[-1] / 2) / 9)


@pytest.mark.parametrize("score", measure.SCORES)
@pytest.mark.parametrize("which", ["deletion", "insertion"])
@pytest.mark.parametrize("substrates", [("zero", "zero"), ("mean", "blur")])
def test_single_steps_are_those_of_the_curves(score, which, substrates):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(3 * 144, 4)).double()
    nn.init.constant_(net[2].bias, 10)
    x, saliency = torch.randn(3, 3, 12, 12, dtype=torch.float64), torch.rand(3, 12, 12)
    target = torch.tensor([3, 0, 1])
    options = {"steps": 7, "target": target, "substrates": substrates}
    curves = getattr(measure.all_scores(net, x, saliency, **options)[score], f"{which}_curves")
    for step in range(8):
        at_step = measure.at_step(net, x, saliency, step, which=which, score=score, **options)
        torch.testing.assert_close(at_step.scores, curves[:, step])
    assert net.training


def test_the_images_of_a_step_need_no_model():
    """12 of 16 pixels after 3 of 4 steps, the most salient first, ties in reading order."""

    class Unused(nn.Module):
        def forward(self, x):
            raise AssertionError("a pass through the model")

    x, saliency = images(range(1, 17)), torch.tensor([0.0, 1.0]).repeat(1, 4, 2)
    less, more = (
        measure.at_step(Unused(), x, saliency, 3, steps=4, which=which).images for which in ("deletion", "insertion")
    )
    assert more.flatten().tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 0, 10, 0, 12, 0, 14, 0, 16]
    assert torch.equal(less + more, x)
    whole = measure.at_step(Unused(), x, saliency, 0, steps=4).images
    assert torch.equal(whole, x)
    with pytest.raises(ValueError, match="step=5: choose from 0 to 4"):
        measure.at_step(Unused(), x, saliency, 5, steps=4)
    with pytest.raises(ValueError, match="which='removal'"):
        measure.at_step(Unused(), x, saliency, 1, steps=4, which="removal")
    with pytest.raises(ValueError, match="score='prob'"):
        measure.at_step(Unused(), x, saliency, 1, steps=4, score="prob")


def test_targets_of_the_wrong_number_and_maps_of_numpy(model):
    x = images([1.0] * 16, [2.0] * 16, [3.0] * 16)
    with pytest.raises(ValueError, match=r"target of shape \(2,\): give one class, or one for each of the 3 images"):
        measure.deletion_insertion(model, x, torch.rand(3, 4, 4), torch.tensor([1, 0]), steps=4)
    maps = np.random.default_rng(0).random((3, 4, 4))
    one, other = (measure.deletion_insertion(model, x, m, steps=4) for m in (maps, torch.from_numpy(maps)))
    assert torch.equal(one.deletion_curves, other.deletion_curves)


def test_bad_input(model):
    x, maps = images([1.0] * 16), torch.rand(1, 4, 4)
    with pytest.raises(ValueError, match=r"saliency of shape \(1, 4, 3\): for these images it must be \(1, 4, 4\)"):
        measure.deletion_insertion(model, x, maps[:, :, :3])
    with pytest.raises(ValueError, match="the saliency has NaN"):
        measure.deletion_insertion(model, x, maps * torch.nan)
    with pytest.raises(ValueError, match="steps=17: choose from 1 to 16"):
        measure.deletion_insertion(model, x, maps, steps=17)
    with pytest.raises(ValueError, match="score='prob'"):
        measure.deletion_insertion(model, x, maps, steps=4, score="prob")
    with pytest.raises(ValueError, match="a substrate is"):
        measure.deletion_insertion(model, x, maps, steps=4, deletion_to="black")
    with pytest.raises(ValueError, match="target=2: the model has 2 classes"):
        measure.deletion_insertion(model, x, maps, 2, steps=4)
    training = Sum(torch.ones(1, 4, 4, dtype=torch.float64)).train()
    measure.deletion_insertion(training, x, maps, steps=4)
    assert training.training


class Logits(nn.Module):
    """Each image's own logits, written into its first pixels."""

    def forward(self, x):
        return x.flatten(1)[:, :4]


def with_logits(*rows):
    x = torch.zeros(len(rows), 1, 4, 4, dtype=torch.float64)
    x.flatten(1)[:, :4] = torch.tensor(rows, dtype=torch.float64)
    return x


def test_no_relative_score_where_the_clean_logit_is_near_0():
    """0, negative, and 1 of a spread of 101; the fourth is ordinary. One warning, and means over the fourth alone."""
    x = with_logits([0.0, 0, 0, 0], [-2, -3, -4, -5], [1, 0, 0, -100], [3, 1, 0, -1])
    maps = torch.rand(4, 4, 4)
    with pytest.warns(UserWarning, match="3 of 4 images have no relative score") as caught:
        curves = measure.deletion_insertion(Logits(), x, maps, 0, steps=16)
    assert len(caught) == 1
    assert "logit" in str(caught[0].message)
    assert curves.deletion.isnan().tolist() == curves.insertion.isnan().tolist() == [True, True, True, False]
    assert curves.deletion_curves[:3].isnan().all()
    assert curves.counted == 1
    alone = measure.deletion_insertion(Logits(), x[3:], maps[3:], 0, steps=16)
    assert curves.means == alone.means
    with pytest.warns(UserWarning, match="3 of 4 images"):
        at_step = measure.at_step(Logits(), x, maps, 3, steps=16, target=0).scores
    torch.testing.assert_close(at_step, curves.deletion_curves[:, 3], equal_nan=True)
    for score in ("logit", "probability"):
        assert measure.deletion_insertion(Logits(), x, maps, 0, steps=16, score=score).counted == 4


def test_a_clean_logit_that_moves_far():
    """The logits of the clean image lie together, but deletion moves the class's by more than 20 times its size."""

    class Bias(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :2] - 50

    x = with_logits([50.1, 50, 0, 0], [60, 50, 0, 0])
    with pytest.warns(UserWarning, match="1 of 2 images"):
        curves = measure.deletion_insertion(Bias(), x, torch.rand(2, 4, 4), 0, steps=4)
    assert curves.deletion.isnan().tolist() == [True, False]


def test_no_image_has_a_relative_score():
    with pytest.warns(UserWarning, match="1 of 1 images"):
        curves = measure.all_scores(Logits(), with_logits([0.0, 0, 0, 0]), torch.rand(1, 4, 4), steps=4)
    assert all(np.isnan(mean) for mean in curves["relative"].means)
    assert curves["relative"].counted == 0
