import torch
from hypothesis import given
from hypothesis import strategies as st

from bort.train import recognised


@given(st.integers(0, 2**32 - 1))
def test_without_ties_it_is_topk(seed):
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.rand(20, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(7, (20,), generator=generator)
    for k in (1, 5):
        among = (outputs.topk(k).indices == labels[:, None]).any(1)
        assert torch.equal(recognised(outputs, labels, k), among.double())


def test_ties_are_shared_out():
    """What chance would get right, whichever label is the right one; NaN is nothing."""
    outputs = torch.tensor([[0.0, 0.0, 0.0], [2.0, 1.0, 2.0], [float("nan"), 1.0, 0.0]])
    by_label = torch.stack([recognised(outputs, torch.full((3,), label)) for label in range(3)], 1)
    expected = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.5, 0.0, 0.5], [0.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(by_label, expected)


@given(st.lists(st.integers(0, 2), min_size=3, max_size=8), st.integers(1, 3))
def test_over_all_labels_the_shares_are_k(values, k):
    """k places, shared out whole, however many outputs are equal."""
    outputs = torch.tensor([values], dtype=torch.float32)
    shares = [recognised(outputs, torch.tensor([label]), k).item() for label in range(len(values))]
    assert abs(sum(shares) - k) < 1e-12
    assert all(0 <= share <= 1 for share in shares)
