"""Bort-X: any torch optimizer, made bounded-orthogonal. Needs torch alone."""

from torch.optim import SGD, AdamW

from bort.optim._bort import Bort
from bort.optim._bortify import bortify
from bort.optim._checkpoints import adapt_state_dict
from bort.optim._groups import ParamGroups, param_groups
from bort.optim._lamb import Lamb
from bort.optim._pull import constraint_for, scheduled_rate

__all__ = [
    "Bort",
    "BortA",
    "BortL",
    "BortS",
    "Lamb",
    "ParamGroups",
    "adapt_state_dict",
    "bortify",
    "constraint_for",
    "param_groups",
    "scheduled_rate",
]

BortS = bortify(SGD)
BortA = bortify(AdamW)
BortL = bortify(Lamb)

for _class in (BortS, BortA, BortL):
    _class.__doc__ = f"""{_class.__doc__}

    Example:
        >>> model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> optimizer = bort.{_class.__name__}(model, lr=0.1, constraint=0.5)
        >>> model(torch.rand(4, 8)).square().mean().backward()
        >>> optimizer.step()
        >>> list(optimizer.residuals())
        ['0.weight', '2.weight']
    """
