"""benchmarks/real_step.py, on a small network: every variant trains its own copy, and the ratios are to the base."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import real_step


@pytest.mark.parametrize("base", real_step.BASES)
def test_the_ratios_of_a_small_network(base):
    setting = real_step.Setting("lenet", base, 1.0, size=28)
    result = real_step.compare(setting, rounds=1, steps=4, batch=2, device="cpu")
    assert result["of_base"][base] == 1.0
    assert result["of_base"] == pytest.approx({name: ms / result["ms"][base] for name, ms in result["ms"].items()})
    assert len(result["ms"]) == 4
    assert all(ms > 0 for ms in result["ms"].values())


def test_each_variant_steps_a_model_of_its_own():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, real_step.CLASSES))
    made = real_step.optimizers(model, "AdamW", fused=False)
    before = model[1].weight.detach().clone()
    for optimizer in made.values():
        real_step.training_step(optimizer, torch.randn(2, 3, 2, 2), torch.tensor([0, 1]))()
        assert not torch.equal(optimizer.owner[1].weight, before)
    assert torch.equal(model[1].weight, before)
    assert len({id(optimizer.owner) for optimizer in made.values()}) == len(made)
