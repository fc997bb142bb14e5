"""Expected calibration error: closed forms, a loop in float64, torchmetrics, and what has no calibration."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from bort import measure


def logits_of(*probabilities):
    """Two classes, the first with these probabilities."""
    p = torch.tensor(probabilities, dtype=torch.float64)
    return torch.stack([p, 1 - p], dim=1).log()


def test_closed_form():
    """Four images with confidence 0.9, of which three are right, and two with 0.6, of which none is."""
    result = measure.calibration(logits_of(0.9, 0.9, 0.9, 0.9, 0.6, 0.6), torch.tensor([0, 0, 0, 1, 1, 1]), bins=4)
    assert result.error == pytest.approx(4 / 6 * 0.15 + 2 / 6 * 0.6)
    assert result.counts.tolist() == [0, 0, 2, 4]
    np.testing.assert_allclose(result.confidence, [math.nan, math.nan, 0.6, 0.9])
    np.testing.assert_allclose(result.accuracy, [math.nan, math.nan, 0, 0.75])
    expected = -(3 * math.log(0.9) + math.log(0.1) + 2 * math.log(0.4)) / 6
    assert result.negative_log_likelihood == pytest.approx(expected)


def by_a_loop(logits, labels, bins):
    """Guo et al.'s definition, an image at a time."""
    members = [[] for _ in range(bins)]
    for row, label in zip(logits.double().numpy(), labels.tolist(), strict=True):
        probabilities = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        place = next(b for b in range(bins) if probabilities.max() <= (b + 1) / bins or b == bins - 1)
        members[place].append((probabilities.max(), probabilities.argmax() == label))
    filled = [np.mean(m, axis=0) * len(m) for m in members if m]
    return sum(abs(right - confidence) for confidence, right in filled) / len(logits), [len(m) for m in members]


@given(
    seed=st.integers(0, 2**31),
    count=st.integers(1, 60),
    classes=st.integers(2, 7),
    bins=st.integers(1, 20),
    scale=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_against_a_loop(seed, count, classes, bins, scale):
    draws = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(count, classes, generator=draws)
    labels = torch.randint(classes, (count,), generator=draws)
    result = measure.calibration(logits, labels, bins)
    error, counts = by_a_loop(logits, labels, bins)
    assert result.error == pytest.approx(error, abs=1e-12)
    assert result.counts.tolist() == counts
    assert result.negative_log_likelihood == pytest.approx(F.cross_entropy(logits.double(), labels).item())


@pytest.mark.slow  # the import
def test_against_torchmetrics():
    peer = pytest.importorskip("torchmetrics.functional.classification")
    logits, labels = 3 * torch.randn(500, 10), torch.randint(10, (500,))
    expected = peer.multiclass_calibration_error(logits, labels, num_classes=10, n_bins=15, norm="l1").item()
    assert measure.calibration(logits, labels).error == pytest.approx(expected, abs=1e-6)


def test_a_network_that_is_right_as_often_as_it_believes():
    """Labels drawn from the network's own probabilities: the error is near 0, and doubling the logits raises it."""
    draws = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(40_000, 5, generator=draws)
    labels = logits.softmax(dim=1).multinomial(1, generator=draws)[:, 0]
    assert measure.calibration(logits, labels).error < 0.02
    overconfident = measure.calibration(2 * logits, labels)
    assert overconfident.error > 0.1
    gaps = overconfident.confidence - overconfident.accuracy
    assert gaps[overconfident.counts > 1000].min() > 0


def test_bins_end_with_their_upper_edge_and_1_is_in_the_last():
    result = measure.calibration(logits_of(0.5, 0.75), torch.tensor([0, 0]), bins=4)
    assert result.counts.tolist() == [0, 1, 1, 0]
    sure = measure.calibration(torch.tensor([[1000.0, 0.0]] * 3), torch.tensor([0, 0, 1]), bins=4)
    assert sure.counts.tolist() == [0, 0, 0, 3]
    assert sure.confidence[-1] == 1
    assert sure.error == pytest.approx(1 / 3)
    assert sure.negative_log_likelihood == pytest.approx(1000 / 3)


def test_ties_count_in_part():
    """A network that cannot tell four classes apart is right a quarter of the time and says so."""
    result = measure.calibration(torch.zeros(5, 4), torch.tensor([0, 0, 0, 0, 3]))
    assert result.error == pytest.approx(0, abs=1e-15)
    assert result.accuracy[result.counts > 0].tolist() == [0.25]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float64(dtype):
    logits, labels = torch.randn(50, 10).to(dtype), torch.randint(10, (50,))
    half, double = (measure.calibration(values, labels) for values in (logits, logits.double()))
    assert half.error == double.error
    assert half.confidence.dtype == torch.float64


def test_mistakes():
    logits, labels = torch.randn(3, 4), torch.tensor([0, 1, 3])
    for bad in (torch.nan, torch.inf):
        with pytest.raises(ValueError, match="the logits have NaN or Inf in them"):
            measure.calibration(torch.cat([logits[:2], torch.full((1, 4), bad)]), labels)
    with pytest.raises(ValueError, match="bins=0: must be 1 or more"):
        measure.calibration(logits, labels, bins=0)
    with pytest.raises(ValueError, match="label 4: the network has 4 classes, 0 to 3"):
        measure.calibration(logits, labels + 1)
    with pytest.raises(
        ValueError, match=r"labels of shape \(2,\) in torch.int64: give a whole number for each of the 3"
    ):
        measure.calibration(logits, labels[:2])
    with pytest.raises(ValueError, match=r"labels of shape \(3,\) in torch.float32"):
        measure.calibration(logits, labels.float())
    with pytest.raises(ValueError, match=r"logits of shape \(3, 1\)"):
        measure.calibration(logits[:, :1], labels)
    with pytest.raises(ValueError, match="there are no images"):
        measure.calibration(logits[:0], labels[:0])
    with pytest.raises(TypeError, match=r"not torch\.int64"):
        measure.calibration(labels[:, None], labels)
