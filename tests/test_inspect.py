"""Looking at models: eval mode, logits, classes, and batches that fit the memory budget."""

import pytest
import torch
from torch import nn

from bort import audit
from bort._budget import current_budget, memory_budget
from bort._inspect import classes_of, evaluating, images_at_once, outputs_of, targets_of


def test_modes_come_back_module_by_module():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2)).train()
    model[1].eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False, True]


def test_the_input_of_a_model_that_works_in_place_is_kept():
    x = torch.ones(1, 2)
    outputs_of(nn.Sequential(nn.Threshold(5, 0, inplace=True)), x)
    assert torch.equal(x, torch.ones(1, 2))


def test_targets():
    outputs = torch.tensor([[0.0, 1.0, 0.5], [2.0, 1.0, 0.0]])
    assert targets_of(outputs, None).tolist() == [1, 0]
    assert targets_of(outputs, 2).tolist() == [2, 2]
    assert targets_of(outputs, torch.tensor([2, 1])).tolist() == [2, 1]
    with pytest.raises(ValueError, match=r"outputs of shape \(2, 3, 1\), not \(N, classes\)"):
        targets_of(outputs[..., None], None)


def test_images_that_fit_into_a_pass(net, x):
    """By the largest tensor that ACNN-Small makes of an image, or by all of them if they are kept for gradients."""
    sizes = ((net.conv1, 28), (net.conv2, 28), (net.conv3, 14), (net.conv5, 6))
    widest = max(conv.out_channels * side * side for conv, side in sizes)
    with memory_budget(forward=5 * widest):
        assert images_at_once(net, x) == 5
    with memory_budget(kept=1):
        assert images_at_once(net, x, backward=True) == 1


def test_classes_do_not_depend_on_the_batches(net, x):
    whole = classes_of(net, x, None)
    with memory_budget(forward=1):
        assert torch.equal(classes_of(net, x, None), whole)


def test_the_budget_holds_inside_and_no_longer():
    before = current_budget()
    with memory_budget(forward=10, kept=20):
        with memory_budget(forward=5):
            assert (current_budget().forward, current_budget().kept) == (5, 20)
        assert current_budget().forward == 10
        assert current_budget().backward == before.backward
    assert current_budget() == before


def test_a_model_that_converts_its_input_is_left_alone():
    class Converts(nn.Sequential):
        def forward(self, x):
            return super().forward(x.double())

    audit(Converts(nn.Flatten(), nn.Linear(16, 3)).double(), torch.rand(2, 1, 4, 4))


def test_a_lazy_model():
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    for x in (None, torch.rand(2, 4)):
        with pytest.raises(ValueError, match=r"parameter '1.weight' has no shape yet: run one batch"):
            audit(model, x)


def test_passes_on_a_cpu_stay_small():
    """Large ones leave the caches: an image in a pass of many takes longer."""
    model, x = nn.Flatten(), torch.zeros(1, 3, 512, 512)
    assert images_at_once(model, x) == 2**22 // (3 * 512 * 512)
    with memory_budget(cpu=2**30):
        assert images_at_once(model, x) == 2**25 // (3 * 512 * 512)
    with memory_budget(forward=2**20):
        assert images_at_once(model, x) == 1
