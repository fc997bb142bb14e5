"""Whether weights are still where they were: everything that a kernel could trip over is noticed."""

import pytest
import torch

from bort.optim import _places
from bort.optim._places import are_at, places

MEMORY = torch.randn(4000)
WEIGHT = MEMORY[:96].view(8, 12)


@pytest.fixture(params=["torch's comparison", "our own"], autouse=True)
def _comparison(request, monkeypatch):
    if request.param == "our own":
        monkeypatch.setattr(_places, "_assert_size_stride", _places._compare)


@pytest.mark.parametrize(
    ("other", "slot"),
    [
        pytest.param(MEMORY[1:97].view(8, 12), 0, id="another address"),
        pytest.param(WEIGHT[:6], 0, id="fewer rows"),
        pytest.param(WEIGHT.view(12, 8), 0, id="another shape"),
        pytest.param(WEIGHT.view(8, 12, 1), 0, id="another dimension"),
        pytest.param(MEMORY.as_strided((8, 12), (1, 8)), 0, id="other strides"),
        pytest.param(WEIGHT.view(torch.int32), 0, id="another dtype"),
        pytest.param(WEIGHT, 1, id="another slot"),
    ],
)
def test_a_change_is_noticed(other, slot):
    before = places([(0, WEIGHT), (2, MEMORY)])
    assert are_at([(0, WEIGHT), (2, MEMORY)], before)
    assert are_at([(0, WEIGHT.view(8, 12)), (2, MEMORY)], before), "another tensor at the same place is as good"
    assert not are_at([(slot, other), (2, MEMORY)], before)


def test_weights_that_come_and_go_are_noticed():
    before = places([(0, WEIGHT), (1, MEMORY)])
    assert not are_at([(0, WEIGHT)], before)
    assert not are_at([(0, WEIGHT), (1, MEMORY), (2, MEMORY)], before)
    assert not are_at([(0, MEMORY), (1, WEIGHT)], before)
    assert are_at([], places([]))
