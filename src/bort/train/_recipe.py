"""What a training is made of. Every field has its meaning beside it; a recipe goes to JSON and comes back."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_type_hints

OPTIMIZERS = ("sgd", "bort-s", "adamw", "bort-a", "lamb", "bort-l")


@dataclass(frozen=True)
class Net:
    name: str
    """For bort.nets.create."""
    width: float = 1.0
    """Of the paper's own networks: a multiple of their channels."""
    drop_path: float = 0.0
    """The largest rate of stochastic depth, for networks of timm that have it."""


@dataclass(frozen=True)
class Data:
    name: str
    """For bort.data.load."""
    image_size: int
    channels: int = 3
    classes: int = 10


@dataclass(frozen=True)
class Augment:
    randaugment: str = ""
    """timm's notation, such as "rand-m9-mstd0.5"; empty: none."""
    mixup: float = 0.0
    cutmix: float = 0.0
    erase: float = 0.0
    """Probability of random erasing."""
    color_jitter: float = 0.0
    splits: int = 0
    """Augmentation splits: one clean image and splits − 1 augmented ones in a batch; 0: none."""
    crop_and_flip: bool = False
    """Random resized crops and flips, as everybody trains on ImageNet."""


@dataclass(frozen=True)
class Optim:
    name: Literal["sgd", "bort-s", "adamw", "bort-a", "lamb", "bort-l"]
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    constraint: float = 0.0
    """λ; 0 for the baselines."""
    every: int = 1
    """Apply every·λ at each every-th step."""
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_epochs: int = 0
    clip: float | None = None
    """Largest norm of the gradient."""


@dataclass(frozen=True)
class Paper:
    """What the paper reports for this row, in per cent."""

    table: str
    top1: float
    top5: float | None = None


@dataclass(frozen=True)
class Recipe:
    name: str
    net: Net
    data: Data
    optim: Optim
    epochs: int
    batch: int
    augment: Augment = field(default_factory=Augment)
    loss: Literal["cross-entropy", "jsd", "bce"] = "cross-entropy"
    """"jsd": cross-entropy on the clean split plus a Jensen–Shannon divergence between the splits; "bce": binary."""
    seed: int = 0
    paper: Paper | None = None

    def __post_init__(self) -> None:
        is_bort = self.optim.name.startswith("bort")
        if self.optim.name not in OPTIMIZERS:
            raise ValueError(
                f"optim.name={self.optim.name!r} in recipe {self.name!r}: choose one of {', '.join(OPTIMIZERS)}"
            )
        if is_bort != bool(self.optim.constraint):
            raise ValueError(
                f"optim.constraint={self.optim.constraint} in recipe {self.name!r} with optim.name={self.optim.name!r}: "
                "a λ greater than 0 belongs to the Bort optimizers, and to them only"
            )
        if self.epochs < 1 or self.batch < 1:
            raise ValueError(
                f"epochs={self.epochs}, batch={self.batch} in recipe {self.name!r}: both must be 1 or more"
            )
        if self.loss == "jsd" and self.augment.splits < 2:
            raise ValueError(f"loss='jsd' in recipe {self.name!r} needs augment.splits of 2 or more")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Recipe:
        """The way back. What a recipe does not have is refused, with its place."""
        recipe: Recipe = _build(Recipe, values, "recipe")
        return recipe


def _build(cls: Any, values: Any, where: str) -> Any:
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be a table of fields, not {values!r}")
    hints = get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ValueError(f"{where} has no field {unknown[0]!r}; there are {', '.join(hints)}")
    missing = [
        f.name
        for f in dataclasses.fields(cls)
        if f.name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ValueError(f"{where} lacks the field {missing[0]!r}")
    built = {}
    for name, value in values.items():
        nested = next((kind for kind in (Net, Data, Augment, Optim, Paper) if hints[name] in (kind, kind | None)), None)
        built[name] = value if nested is None or value is None else _build(nested, value, f"{where}.{name}")
    return cls(**built)
