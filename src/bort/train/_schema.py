"""What a training is made of. Every field has its meaning beside it; a recipe goes to JSON and comes back."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


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
    activation: Literal["relu", "tanh", "sigmoid"] = "relu"
    """Of LeNet, which the paper does not describe."""
    pool: Literal["max", "average"] = "max"
    """Of LeNet."""
    last: Literal["linear", "relu"] = "linear"
    """Of LeNet: whether a ReLU follows its last layer too."""

    def __post_init__(self) -> None:
        check_fields(self, "net")
        require(self.width > 0, f"net.width={self.width}: must be greater than 0, 1 is the paper's")
        require(self.narrowest >= 1, f"net.narrowest={self.narrowest}: must be 1 or more")
        require(0 <= self.drop_path < 1, f"net.drop_path={self.drop_path}: must be from 0 to below 1")


@dataclass(frozen=True)
class Data:
    name: str
    """For bort.data.load."""
    image_size: int
    """Height and width; images of a folder are brought to it."""
    channels: int = 3
    """1 for grey images, 3 for coloured ones."""
    classes: int = 10
    normalise: bool = True
    """By the mean and deviation of each channel; otherwise images are numbers from 0 to 1. Of a folder always."""
    corrupt: Literal["stop", "skip"] = "stop"
    """What a folder's image that cannot be read does: end the run with its name, or be left out and counted."""

    def __post_init__(self) -> None:
        check_fields(self, "data")
        for name in ("image_size", "channels", "classes"):
            require(getattr(self, name) >= 1, f"data.{name}={getattr(self, name)}: must be 1 or more")
        is_folder = self.name.startswith("folder:")
        require(self.normalise or not is_folder, "data.normalise=False: images of a folder are always normalised")


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

    def __post_init__(self) -> None:
        check_fields(self, "augment")
        for name in ("mixup", "cutmix", "color_jitter"):
            require(getattr(self, name) >= 0, f"augment.{name}={getattr(self, name)}: must be 0 or more")
        require(0 <= self.erase <= 1, f"augment.erase={self.erase}: a probability is from 0 to 1")
        require(self.splits == 0 or self.splits >= 2, f"augment.splits={self.splits}: 0, or 2 and more")


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
    scale: float = 1.0
    """s of the target WᵀW = s·I. 2 keeps the signal's size in deep networks of ReLUs without normalisation layers."""
    groups: Literal["all", "modules"] = "all"
    """"all": decay every parameter and constrain every weight of two or more dimensions (Table 1); "modules": what
    bort.param_groups decides, so neither biases and norms are decayed nor embeddings and the classifier constrained."""
    schedule: Literal["constant", "cosine"] = "constant"
    """"cosine": half a period, down to 0."""
    warmup_epochs: int = 0
    """Epochs in which the rate rises from 0, step by step."""
    clip: float | None = None
    """Largest norm of the gradient."""

    def __post_init__(self) -> None:
        check_fields(self, "optim")
        has_momentum, is_bort = self.name in ("sgd", "bort-s"), self.name.startswith("bort")
        require(self.lr > 0, f"optim.lr={self.lr}: must be greater than 0")
        require(0 <= self.momentum < 1, f"optim.momentum={self.momentum}: must be from 0 to below 1")
        require(has_momentum or not self.momentum, f"optim.momentum={self.momentum}: {self.name} has none of its own")
        require(self.weight_decay >= 0, f"optim.weight_decay={self.weight_decay}: must be 0 or more")
        require(self.constraint >= 0, f"optim.constraint={self.constraint}: must be 0 or more")
        require(self.every >= 1, f"optim.every={self.every}: must be 1 or more")
        require(is_bort or self.every == 1, f"optim.every={self.every}: {self.name} has no penalty")
        require(self.scale > 0, f"optim.scale={self.scale}: must be greater than 0, 1 is the paper's")
        require(is_bort or self.scale == 1, f"optim.scale={self.scale}: {self.name} has no penalty")
        require(self.warmup_epochs >= 0, f"optim.warmup_epochs={self.warmup_epochs}: must be 0 or more")
        require(self.clip is None or self.clip > 0, f"optim.clip={self.clip}: must be greater than 0, or None")


@dataclass(frozen=True)
class Paper:
    """What the paper reports for this row, in per cent."""

    table: str
    top1: float
    top5: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, "paper")


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
        check_fields(self, "recipe")
        optim, augment, where = self.optim, self.augment, f"in recipe {self.name!r}"
        if not self.name or self.name != self.name.strip() or "/" in self.name or self.name.startswith("."):
            raise ValueError(f"name={self.name!r}: a recipe's name is the name of a folder")
        require(
            self.epochs >= 1 and self.batch >= 1,
            f"epochs={self.epochs}, batch={self.batch} {where}: both must be 1 or more",
        )
        require(0 <= self.smoothing < 1, f"smoothing={self.smoothing} {where}: must be from 0 to below 1")
        require(self.seed >= 0, f"seed={self.seed} {where}: must be 0 or more")
        if optim.name.startswith("bort") != bool(optim.constraint):
            raise ValueError(
                f"optim.constraint={optim.constraint} {where} with optim.name={optim.name!r}: "
                "a λ greater than 0 belongs to the Bort optimizers, and to them only"
            )
        if optim.warmup_epochs >= self.epochs and optim.warmup_epochs:
            raise ValueError(
                f"optim.warmup_epochs={optim.warmup_epochs} {where} leaves nothing of epochs={self.epochs}"
            )
        if augment.mixup or augment.cutmix:
            require(self.loss != "jsd", f"augment.mixup and cutmix {where}: loss='jsd' needs unmixed labels")
            require(self.batch >= 2, f"batch={self.batch} {where}: mixup and cutmix need two images or more")
        if not augment.crop_and_flip and augment != Augment(mixup=augment.mixup, cutmix=augment.cutmix):
            raise ValueError(
                f"augment {where}: RandAugment, erasing, color jitter and splits need augment.crop_and_flip"
            )
        if augment != Augment() and not self.data.name.startswith("folder:"):
            raise ValueError(
                f"augment {where} with data.name={self.data.name!r}: only images of a folder are augmented"
            )
        require(self.loss != "jsd" or augment.splits >= 2, f"loss='jsd' {where} needs augment.splits of 2 or more")

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


def check_fields(values: Any, where: str) -> None:
    """A number is a finite number, and a choice one of those there are: a recipe may have been written by hand."""
    for name, hint in get_type_hints(type(values)).items():
        _check(hint, getattr(values, name), f"{where}.{name}".removeprefix("recipe."))


def _check(hint: Any, value: Any, where: str) -> None:
    kinds = get_args(hint) if isinstance(hint, UnionType) or get_origin(hint) is Union else (hint,)
    if value is None and NoneType in kinds:
        return
    (kind,) = (each for each in kinds if each is not NoneType)
    if get_origin(kind) is Literal:
        require(value in get_args(kind), f"{where}={value!r}: choose one of {', '.join(map(repr, get_args(kind)))}")
        return
    accepted = (int, float) if kind is float else (kind,)
    is_one = isinstance(value, accepted) and not (isinstance(value, bool) and kind is not bool)
    require(is_one, f"{where}={value!r}: must be of type {kind.__name__}")
    require(kind is not float or math.isfinite(value), f"{where}={value!r}: must be a finite number")


def require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


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
