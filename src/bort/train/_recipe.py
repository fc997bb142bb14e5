"""What a training is made of. Every field has its meaning beside it; a recipe goes to JSON and comes back."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

OPTIMIZERS = ("sgd", "bort-s", "adamw", "bort-a", "lamb", "bort-l")


@dataclass(frozen=True)
class Net:
    name: str
    """For bort.nets.create."""
    width: float = 1.0
    """Of the paper's own networks: a multiple of their channels."""
    narrowest: int = 1
    """With a width below 1: no layer gets fewer channels than this (or than the paper's)."""
    drop_path: float = 0.0
    """The largest rate of stochastic depth, for networks of timm that have it."""


@dataclass(frozen=True)
class Data:
    name: str
    """For bort.data.load."""
    image_size: int
    """Height and width; images of a folder are brought to it."""
    channels: int = 3
    """1 for grey images, 3 for coloured ones."""
    classes: int = 10
    corrupt: Literal["stop", "skip"] = "stop"
    """What a folder's image that cannot be read does: end the run with its name, or be left out and counted."""


@dataclass(frozen=True)
class Augment:
    randaugment: str = ""
    """timm's notation, such as "rand-m9-mstd0.5"; empty: none."""
    mixup: float = 0.0
    """α of mixup; 0: none."""
    cutmix: float = 0.0
    """α of cutmix; with both, each batch gets one or the other."""
    erase: float = 0.0
    """Probability of random erasing."""
    color_jitter: float = 0.0
    """Without RandAugment only: timm leaves it out where there is RandAugment, as the official DeiT and Swin trainings do."""
    splits: int = 0
    """Augmentation splits: one clean image and splits − 1 augmented ones in a batch; 0: none."""
    crop_and_flip: bool = False
    """Random resized crops and flips, as everybody trains on ImageNet."""


@dataclass(frozen=True)
class Optim:
    name: Literal["sgd", "bort-s", "adamw", "bort-a", "lamb", "bort-l"]
    lr: float
    """The learning rate, the largest one if there is a schedule."""
    momentum: float = 0.0
    """Of SGD and Bort-S."""
    weight_decay: float = 0.0
    constraint: float = 0.0
    """λ; 0 for the baselines."""
    every: int = 1
    """Apply every·λ at each every-th step."""
    groups: Literal["all", "modules"] = "all"
    """"all": decay every parameter and constrain every weight of two or more dimensions (Table 1); "modules": what
    bort.param_groups decides, so neither biases and norms are decayed nor embeddings and the classifier constrained."""
    schedule: Literal["constant", "cosine"] = "constant"
    """"cosine": half a period, down to 0."""
    warmup_epochs: int = 0
    """Epochs in which the rate rises from 0, step by step."""
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
    """Images in a step, over all processes."""
    augment: Augment = field(default_factory=Augment)
    loss: Literal["cross-entropy", "jsd", "bce"] = "cross-entropy"
    """"jsd": cross-entropy on the clean split plus a Jensen–Shannon divergence between the splits; "bce": binary."""
    smoothing: float = 0.0
    """Of the labels."""
    seed: int = 0
    """Of the weights, the order of the images and all chance in them."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """"bfloat16" is autocast to it, in the forward pass only; "auto": that on a GPU, float32 elsewhere."""
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
        if self.optim.warmup_epochs >= self.epochs and self.optim.warmup_epochs:
            raise ValueError(
                f"optim.warmup_epochs={self.optim.warmup_epochs} in recipe {self.name!r} leaves nothing of "
                f"epochs={self.epochs}"
            )
        for field_name, value in (("mixup", self.augment.mixup), ("cutmix", self.augment.cutmix)):
            if value and self.loss == "jsd":
                raise ValueError(
                    f"augment.{field_name}={value} in recipe {self.name!r}: loss='jsd' needs unmixed labels"
                )
        if not self.augment.crop_and_flip and self.augment != Augment(
            mixup=self.augment.mixup, cutmix=self.augment.cutmix
        ):
            raise ValueError(
                f"augment in recipe {self.name!r}: RandAugment, erasing, color jitter and splits need augment.crop_and_flip"
            )
        if self.augment != Augment() and not self.data.name.startswith("folder:"):
            raise ValueError(
                f"augment in recipe {self.name!r} with data.name={self.data.name!r}: only images of a folder are augmented"
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
        _check(hints[name], value, f"{where}.{name}")
        nested = next((kind for kind in (Net, Data, Augment, Optim, Paper) if hints[name] in (kind, kind | None)), None)
        built[name] = value if nested is None or value is None else _build(nested, value, f"{where}.{name}")
    return cls(**built)


def _check(hint: Any, value: Any, where: str) -> None:
    """A number is a number, and a choice one of those there are: a recipe may have been written by hand."""
    if get_origin(hint) is Literal and value not in get_args(hint):
        raise ValueError(f"{where}={value!r}: choose one of {', '.join(map(repr, get_args(hint)))}")
    kinds = {float: (int, float), int: (int,), str: (str,), bool: (bool,)}
    if hint in kinds and (not isinstance(value, kinds[hint]) or (isinstance(value, bool) and hint is not bool)):
        raise ValueError(f"{where}={value!r}: must be of type {hint.__name__}")


def differences(old: Recipe, new: Recipe) -> list[str]:
    """What differs, as "optim.lr: 0.01 → 0.02"."""
    before, after = _flat(old.to_dict()), _flat(new.to_dict())
    names = [*before, *(name for name in after if name not in before)]
    return [f"{n}: {before.get(n)} → {after.get(n)}" for n in names if before.get(n) != after.get(n)]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found
