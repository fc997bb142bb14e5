"""One recipe for each row of the paper's Tables 1 and 2, and small ones that follow them.

For Table 1 the paper does not give momentum and the normalisation of the inputs; with momentum 0.9 and per-channel mean and
deviation ACNN-Small reaches the paper's accuracy. Table 2 has every setting of tab:imagenet_recipes1 and
tab:imagenet_recipes2; where the text of section 4.1 and the tables differ (λ of VGG16 with Bort-S), the tables are followed.
What the paper leaves to "the setting in timm" and "the official setting" is label smoothing: 0.1, and none with BCE.

``mnist5k-…`` are Table 1 on the built-in digits: a minute on two CPU cores. ``tiny-imagenet-…`` are the rows of Table 2 on
100 classes of Tiny ImageNet at 64 × 64, with the same augmentation, loss, λ, decay and rate, a quarter of the batch, and 30
(VGG16), 40 (ResNet-50) or 60 epochs instead of 300: minutes on one GPU. ``tiny-imagenet-acnn-base-…`` are the network of
Table 3's last column on the same images; the paper does not say how it was trained.
"""

from __future__ import annotations

import difflib
from dataclasses import replace

from bort.train._schema import Augment, Data, Net, Optim, Paper, Recipe

__all__ = ["Augment", "Data", "Net", "Optim", "Paper", "Recipe", "get", "names"]

_MNIST = Data("mnist", image_size=28, channels=1)
_CIFAR10 = Data("cifar10", image_size=32)
_MNIST5K = Data("mnist5k", image_size=28, channels=1)
_IMAGENET = Data("folder:imagenet", image_size=224, classes=1000)
_TINY = Data("folder:tiny-imagenet-100", image_size=64, classes=100)


_SGD = Optim("sgd", lr=0.01, momentum=0.9, weight_decay=0.01)
_BORT_S = replace(_SGD, name="bort-s", constraint=0.1)


def _table_1() -> list[Recipe]:
    rows = []
    for net, data, sgd, bort_s in (
        ("lenet", _MNIST, 79.01, 88.85),
        ("lenet", _CIFAR10, 57.35, 62.24),
        ("acnn-small", _MNIST, 98.42, 99.25),
        ("acnn-small", _CIFAR10, 66.67, 72.75),
    ):
        base = Recipe(f"{data.name}-{net}-sgd", Net(net), data, _SGD, epochs=40, batch=256, paper=Paper("1", sgd))
        if net == "lenet":
            base = replace(base, precision="float32")  # casting would take longer than its layers
        rows += [base, replace(base, name=f"{data.name}-{net}-bort-s", optim=_BORT_S, paper=Paper("1", bort_s))]
    return rows


def _digits() -> list[Recipe]:
    """Table 1 in small: 4,000 digits, ACNN-Small narrowed to 8, 24, 72, 108 and 324 channels."""
    rows = []
    for net, epochs in ((Net("lenet"), 10), (Net("acnn-small", {"width": 0.125, "narrowest": 72}), 12)):
        base = Recipe(f"mnist5k-{net.name}-sgd", net, _MNIST5K, _SGD, epochs, batch=64, precision="float32")
        rows += [base, replace(base, name=f"mnist5k-{net.name}-bort-s", optim=_BORT_S)]
    return rows


_SPLITS = Augment("rand-m9-mstd0.5", erase=0.6, splits=3, crop_and_flip=True)
_LAMB = Augment("rand-m7-mstd0.5", mixup=0.1, cutmix=1.0, splits=3, crop_and_flip=True)
_DEIT = Augment("rand-m9-mstd0.5", mixup=0.8, cutmix=1.0, erase=0.25, color_jitter=0.3, crop_and_flip=True)
_SWIN = replace(_DEIT, color_jitter=0.4)


def _table_2() -> list[Recipe]:
    vgg, resnet = Net("timm/vgg16"), Net("timm/resnet50")
    deit = Net("timm/deit_small_patch16_224", {"drop_path_rate": 0.1})
    swin = Net("timm/swin_small_patch4_window7_224", {"drop_path_rate": 0.3})
    return [
        _row("vgg16", vgg, "sgd", 0.05, 5e-5, 0.0, _SPLITS, (73.13, 90.75)),
        _row("vgg16", vgg, "bort-s", 0.05, 2e-5, 1e-3, _SPLITS, (73.36, 91.06)),
        _row("vgg16", vgg, "adamw", 0.001, 2e-5, 0.0, _SPLITS, (64.66, 85.11)),
        _row("vgg16", vgg, "bort-a", 0.001, 2e-5, 1e-4, _SPLITS, (69.75, 88.72)),
        _row("resnet50", resnet, "sgd", 0.05, 2e-5, 0.0, _SPLITS, (76.57, 92.92)),
        _row("resnet50", resnet, "bort-s", 0.05, 2e-5, 1e-4, _SPLITS, (77.60, 93.31)),
        _row("resnet50", resnet, "adamw", 0.001, 2e-5, 0.0, _SPLITS, (76.91, 93.33)),
        _row("resnet50", resnet, "bort-a", 0.001, 2e-5, 1e-4, _SPLITS, (77.61, 93.53)),
        _row("resnet50", resnet, "lamb", 0.005, 0.02, 0.0, _LAMB, (79.72, 94.53)),
        _row("resnet50", resnet, "bort-l", 0.005, 0.002, 2e-5, _LAMB, (79.90, 94.37)),
        _row("deit-s", deit, "adamw", 5e-4, 0.05, 0.0, _DEIT, (79.79, 94.72)),
        _row("deit-s", deit, "bort-a", 5e-4, 0.005, 0.05, _DEIT, (80.41, 95.24)),
        _row("swin-s", swin, "adamw", 5e-4, 0.05, 0.0, _SWIN, (82.63, 96.02)),
        _row("swin-s", swin, "bort-a", 5e-4, 0.005, 0.05, _SWIN, (82.71, 96.18)),
    ]


def _row(
    label: str,
    net: Net,
    optimizer: str,
    lr: float,
    decay: float,
    constraint: float,
    augment: Augment,
    paper: tuple[float, float],
) -> Recipe:
    is_lamb = optimizer in ("lamb", "bort-l")
    momentum = 0.9 if optimizer in ("sgd", "bort-s") else 0.0
    optim = Optim(
        optimizer,  # type: ignore[arg-type]
        lr,
        momentum,
        decay,
        constraint,
        groups="modules",
        schedule="cosine",
        warmup_epochs=5,
    )
    return Recipe(
        f"imagenet-{label}-{optimizer}",
        net,
        _IMAGENET,
        optim,
        epochs=300,
        batch=2048 if is_lamb else 1024,
        augment=augment,
        loss="bce" if is_lamb else ("jsd" if augment.splits else "cross-entropy"),
        smoothing=0.0 if is_lamb else 0.1,
        paper=Paper("2", *paper),
    )


_TINY_EPOCHS = {"timm/vgg16": (30, 2), "timm/resnet50": (40, 2)}
"""Epochs, and those of the warm-up; for the others 60 and 3."""


def _tiny(row: Recipe) -> Recipe:
    """A row of Table 2 in small: two to seven minutes on an H200."""
    epochs, warmup = _TINY_EPOCHS.get(row.net.name, (60, 3))
    # Patches of 8 px: 64 of them, as against 196 on ImageNet; of 16 px there would be 16.
    patches = {"patch_size": 8} if row.net.name.startswith("timm/deit") else {}
    return replace(
        row,
        name=row.name.replace("imagenet", "tiny-imagenet", 1),
        net=replace(row.net, options={**row.net.options, **patches}),
        data=_TINY,
        optim=replace(row.optim, warmup_epochs=warmup),
        epochs=epochs,
        batch=row.batch // 4,
        paper=None,
    )


def _base() -> list[Recipe]:
    """ACNN-Base on Tiny ImageNet, for Table 3: Table 1's rate and λ, All-CNN's weight decay. SGD, since in a first trial with
    AdamW the ReLUs of all classes died (gave 0 for all images)."""
    sgd = Optim("sgd", lr=0.01, momentum=0.9, weight_decay=0.001, schedule="cosine", warmup_epochs=1)
    name, augment = "tiny-imagenet-acnn-base", Augment(crop_and_flip=True)
    base = Recipe(f"{name}-sgd", Net("acnn-base"), _TINY, sgd, epochs=20, batch=256, augment=augment)
    return [base, replace(base, name=f"{name}-bort-s", optim=replace(sgd, name="bort-s", constraint=0.1))]


_RECIPES = {
    recipe.name: recipe
    for recipe in (*_table_1(), *_table_2(), *_digits(), *(_tiny(row) for row in _table_2()), *_base())
}


def names() -> list[str]:
    """All recipes: those of the paper's tables in their order, then the small ones.

    Example:
        >>> [name for name in train.recipes.names() if name.startswith("mnist5k-lenet")]
        ['mnist5k-lenet-sgd', 'mnist5k-lenet-bort-s']
    """
    return list(_RECIPES)


def get(name: str) -> Recipe:
    """The recipe called ``name``.

    Example:
        >>> recipe = train.recipes.get("mnist5k-lenet-bort-s")
        >>> recipe.optim.name, recipe.optim.constraint, recipe.epochs
        ('bort-s', 0.1, 10)
    """
    if name not in _RECIPES:
        near = difflib.get_close_matches(name, _RECIPES, n=3)
        hint = f"near it: {', '.join(near)}" if near else f"there are {', '.join(_RECIPES)}"
        raise ValueError(f"no recipe is called {name!r}; {hint}. `bort recipes` lists them")
    return _RECIPES[name]
