"""What a training is made of: every setting that decides its result. A recipe goes to JSON and comes back."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from bort._import_path import is_import_path
from bort.train import _old_recipes
from bort.train._check import check_fields, check_options, require


@dataclass(frozen=True)
class Net:
    """Which network.

    Example:
        >>> train.recipes.Net("acnn-small", {"width": 0.125})
        Net(name='acnn-small', options={'width': 0.125})
    """

    name: str
    """For bort.nets.create: lenet, acnn-small, acnn-base, timm/<name> or package.module:function."""
    options: dict[str, int | float | str | bool] = field(default_factory=dict, hash=False)
    """More keywords for bort.nets.create: width and narrowest of the paper's ACNNs; activation, pool and last of LeNet;
    drop_path_rate and others of timm's networks."""

    def __post_init__(self) -> None:
        check_fields(self, "net")
        check_options(self.options, "net.options")
        object.__setattr__(self, "options", dict(self.options))  # a copy: recipes made from each other share nothing

    if not TYPE_CHECKING:  # the fields of version 0.1.0 say what has become of them

        def __new__(cls, *args: Any, **fields: Any) -> Net:
            for name in fields:
                if advice := _old_recipes.advice(name):
                    raise TypeError(advice)
            return super().__new__(cls)

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(_old_recipes.advice(name) or f"net has no field {name!r}; there are name and options")


@dataclass(frozen=True)
class Data:
    """Which images.

    Example:
        >>> train.recipes.Data("mnist5k", image_size=28, channels=1, held_out=10).held_out
        10
        >>> train.recipes.Data("mnist5k", image_size=28, held_out=1)
        Traceback (most recent call last):
        ValueError: data.held_out=1: 0, or 2 and more (10 holds a tenth of the training images out)
    """

    name: str
    """For bort.data.load: mnist5k, mnist, cifar10, folder:<path> or package.module:function."""
    image_size: int
    """Height and width; images of a folder are resized and cropped to it."""
    channels: int = 3
    """1 for grey images, 3 for coloured ones."""
    classes: int = 10
    normalise: bool = True
    """By the mean and deviation of each channel; otherwise pixels are scaled to [0, 1]. Images of a folder always are."""
    corrupt: Literal["stop", "skip"] = "stop"
    """If an image of a folder cannot be read: end the run and name the file, or leave it out and count it."""
    held_out: int = 0
    """n: train without every n-th training image and test on those, to choose settings without a look at the test images;
    0: train on all and test on the test images."""

    def __post_init__(self) -> None:
        check_fields(self, "data")
        for name in ("image_size", "channels", "classes"):
            require(getattr(self, name) >= 1, f"data.{name}={getattr(self, name)}: must be 1 or more")
        require(
            self.held_out == 0 or self.held_out >= 2,
            f"data.held_out={self.held_out}: 0, or 2 and more (10 holds a tenth of the training images out)",
        )


@dataclass(frozen=True)
class Augment:
    """How training images are varied; not at all by default.

    Example:
        >>> train.recipes.Augment("rand-m9-mstd0.5", mixup=0.8, cutmix=1.0, crop_and_flip=True).mixup
        0.8
    """

    randaugment: str = ""
    """timm's notation, such as "rand-m9-mstd0.5"; empty: none."""
    mixup: float = 0.0
    """α of mixup; 0: none."""
    cutmix: float = 0.0
    """α of cutmix; with both, each batch gets one or the other."""
    erase: float = 0.0
    """Probability of random erasing."""
    color_jitter: float = 0.0
    """Has no effect with RandAugment: timm then leaves it out, as the official DeiT and Swin trainings do."""
    splits: int = 0
    """Augmentation splits: one clean image and splits − 1 augmented ones in a batch; 0: none."""
    crop_and_flip: bool = False
    """Random resized crops and horizontal flips, the usual augmentation on ImageNet."""

    def __post_init__(self) -> None:
        check_fields(self, "augment")
        for name in ("mixup", "cutmix", "color_jitter"):
            require(getattr(self, name) >= 0, f"augment.{name}={getattr(self, name)}: must be 0 or more")
        require(0 <= self.erase <= 1, f"augment.erase={self.erase}: a probability is from 0 to 1")
        require(self.splits == 0 or self.splits >= 2, f"augment.splits={self.splits}: 0, or 2 and more")


@dataclass(frozen=True)
class Optim:
    """The optimizer, its rate and the constraint.

    Example:
        >>> train.recipes.Optim("bort-s", lr=0.01, momentum=0.9, constraint=0.1).constraint
        0.1
    """

    name: Literal["sgd", "bort-s", "adamw", "bort-a", "lamb", "bort-l"]
    lr: float
    """The learning rate, the largest one if there is a schedule."""
    momentum: float = 0.0
    """Of SGD and Bort-S."""
    weight_decay: float = 0.0
    constraint: float = 0.0
    """λ; 0 for the baselines."""
    pull: float = 0.0
    """In place of λ: λ · Σ lr over the training, divided by 1 − momentum where the penalty passes through it. λ follows from
    it and the length of the training (:func:`bort.constraint_for`)."""
    every: int = 1
    """Apply the penalty at each every-th step only, with every·λ."""
    scale: float = 1.0
    """s of the target WᵀW = s·I. 2 keeps the signal's size in deep networks of ReLUs without normalisation layers."""
    groups: Literal["all", "modules"] = "all"
    """"all": decay every parameter and constrain every weight of two or more dimensions (Table 1); "modules": as
    bort.param_groups decides, without decay of biases and norms and without constraint on embeddings and the classifier."""
    schedule: Literal["constant", "cosine"] = "constant"
    """"cosine": half a period, down to 0."""
    warmup_epochs: int = 0
    """Epochs at the beginning in which the rate rises linearly, step by step."""
    clip: float | None = None
    """Largest norm of the gradient."""

    def __post_init__(self) -> None:
        check_fields(self, "optim")
        has_momentum, is_bort = self.name in ("sgd", "bort-s"), self.name.startswith("bort")
        require(self.lr > 0, f"optim.lr={self.lr}: must be greater than 0")
        require(0 <= self.momentum < 1, f"optim.momentum={self.momentum}: must be from 0 to below 1")
        require(has_momentum or not self.momentum, f"optim.momentum={self.momentum}: {self.name} has none of its own")
        require(self.weight_decay >= 0, f"optim.weight_decay={self.weight_decay}: must be 0 or more")
        for name in ("constraint", "pull"):
            require(0 <= getattr(self, name) < math.inf, f"optim.{name}={getattr(self, name)}: must be 0 or more")
        require(
            not (self.constraint and self.pull),
            f"optim.constraint={self.constraint} and optim.pull={self.pull}: give λ or the pull, the other follows",
        )
        require(self.every >= 1, f"optim.every={self.every}: must be 1 or more")
        require(is_bort or self.every == 1, f"optim.every={self.every}: {self.name} has no penalty")
        require(self.scale > 0, f"optim.scale={self.scale}: must be greater than 0, 1 is the paper's")
        require(is_bort or self.scale == 1, f"optim.scale={self.scale}: {self.name} has no penalty")
        require(self.warmup_epochs >= 0, f"optim.warmup_epochs={self.warmup_epochs}: must be 0 or more")
        require(self.clip is None or self.clip > 0, f"optim.clip={self.clip}: must be greater than 0, or None")


@dataclass(frozen=True)
class Paper:
    """What the paper reports for this row, in per cent.

    Example:
        >>> train.recipes.get("cifar10-acnn-small-bort-s").paper
        Paper(table='1', top1=72.75, top5=None)
    """

    table: str
    top1: float
    top5: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, "paper")


@dataclass(frozen=True)
class Recipe:
    """A training: every setting that decides its result.

    Example:
        >>> recipe = train.recipes.get("mnist5k-lenet-sgd")
        >>> train.Recipe.from_dict(recipe.to_dict()) == recipe
        True
    """

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
    """Of the initial weights, the order of the images, augmentation and dropout."""
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
        if optim.name.startswith("bort") != bool(optim.constraint or optim.pull):
            given = f"optim.pull={optim.pull}" if optim.pull else f"optim.constraint={optim.constraint}"
            if not (optim.pull or optim.constraint):  # it is not known which of them was meant
                given = f"optim.pull={optim.pull} and {given}"
            raise ValueError(
                f"{given} {where} with optim.name={optim.name!r}: "
                "a λ (or a pull) greater than 0 belongs to the Bort optimizers, and to them only"
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
        if self.data.name.startswith("folder:"):
            check_kind_of_data(self, is_folder=True)
        elif not is_import_path(self.data.name):  # what a function returns is known only when it has been called
            check_kind_of_data(self, is_folder=False)
        require(self.loss != "jsd" or augment.splits >= 2, f"loss='jsd' {where} needs augment.splits of 2 or more")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Recipe:
        """The inverse of `to_dict`; recipes of version 0.1.0 are read too. An unknown field is a ValueError that names it."""
        recipe: Recipe = _build(Recipe, _old_recipes.migrated(values), "recipe")
        return recipe


def check_kind_of_data(recipe: Recipe, *, is_folder: bool) -> None:
    """Refuse settings that data in memory, or images of a folder, do not have."""
    where = f"in recipe {recipe.name!r} with data.name={recipe.data.name!r}"
    require(is_folder or recipe.augment == Augment(), f"augment {where}: only images of a folder are augmented")
    require(
        not is_folder or recipe.data.normalise,
        f"data.normalise=False {where}: images of a folder are always normalised",
    )


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


def differences(old: Recipe, new: Recipe) -> list[str]:
    """What differs, as "optim.lr: 0.01 → 0.02"."""
    before, after = _flat(old.to_dict()), _flat(new.to_dict())
    names = [*before, *(name for name in after if name not in before)]
    return [f"{n}: {before.get(n)} → {after.get(n)}" for n in names if before.get(n) != after.get(n)]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one, with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
