"""A compiled step is the eager step, and a schedule on a tensor lr does not compile it again."""

import pytest
import torch
from torch._dynamo.utils import counters

from bort import BortA, BortS

from .cases import batch, net, weights

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch.compile's own
]


@pytest.mark.parametrize(
    ("cls", "options"),
    [(BortS, {"momentum": 0.9}), (BortA, {}), (BortA, {"every": 2})],
    ids=["S", "A", "A every 2"],
)
def test_compiled_equals_eager_without_recompiling(cls, options):
    torch._dynamo.reset()
    results, graphs = [], []
    for compiled in (False, True):
        model = net()
        optimizer = cls(model.parameters(), lr=torch.tensor(0.05), constraint=0.5, **options)
        step = torch.compile(optimizer.step) if compiled else optimizer.step
        counters.clear()
        for index in range(8):
            optimizer.param_groups[0]["lr"].fill_(0.05 / (index + 1))
            x, y = batch(step=index)
            torch.nn.functional.cross_entropy(model(x), y).backward()
            step()
            optimizer.zero_grad()
            graphs.append(counters["stats"]["unique_graphs"])
        results.append((weights(model), optimizer.residuals()))
    (eager, eager_residuals), (compiled, compiled_residuals) = results
    for a, b in zip(eager, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert compiled_residuals == pytest.approx(eager_residuals, rel=1e-4)
    assert graphs[-1] > 0, "nothing was compiled"
    assert len(set(graphs[-5:])) == 1, f"recompiled: {graphs}"
