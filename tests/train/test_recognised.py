import torch
from hypothesis import given
from hypothesis import strategies as st

from bort.train._evaluate import recognised


@given(st.integers(0, 2**32 - 1))
def test_without_ties_it_is_the_argmax(seed):
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.rand(20, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(7, (20,), generator=generator)
    assert torch.equal(recognised(outputs, labels), (outputs.argmax(1) == labels).double())


def test_ties_are_shared_out():
    """What chance would get right, whichever label is the right one; NaN is nothing."""
    outputs = torch.tensor([[0.0, 0.0, 0.0], [2.0, 1.0, 2.0], [float("nan"), 1.0, 0.0]])
    by_label = torch.stack([recognised(outputs, torch.full((3,), label)) for label in range(3)], 1)
    expected = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.5, 0.0, 0.5], [0.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(by_label, expected)
