"""Symmetric matrices in half their room."""

import pytest
import torch

from bort.optim.sharded._triangle import packed, unpacked


@pytest.mark.parametrize("k", [*range(1, 8), 16, 33])
@pytest.mark.parametrize("count", [1, 3])
def test_there_and_back(k, count):
    matrices = torch.randn(count, k, k, generator=torch.Generator().manual_seed(k))
    matrices = matrices.tril() + matrices.tril(-1).mT
    numbers = packed(matrices)
    assert numbers.shape == (count, k * (k + 1) // 2)
    assert torch.equal(unpacked(numbers, k), matrices)
    assert torch.equal(numbers.sort().values, matrices[:, *torch.tril_indices(k, k)].sort().values)


def test_what_is_not_finite_stays_where_it_is():
    matrices = torch.zeros(1, 5, 5)
    matrices[0, 1, 4] = matrices[0, 4, 1] = torch.inf
    assert torch.equal(unpacked(packed(matrices), 5), matrices)
