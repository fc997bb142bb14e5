"""The paper's tables, typed off once more, against the recipes."""

import copy
import json
import pickle
from dataclasses import replace

import pytest
import torch

from bort import nets
from bort.train.recipes import Augment, Data, Net, Recipe, get, names

# tab:mnist_cifar10: model, optimizer, epochs, lr, weight decay, λ, MNIST, CIFAR-10
TABLE_1 = """
lenet       sgd     40  0.01  0.01  0    79.01  57.35
lenet       bort-s  40  0.01  0.01  0.1  88.85  62.24
acnn-small  sgd     40  0.01  0.01  0    98.42  66.67
acnn-small  bort-s  40  0.01  0.01  0.1  99.25  72.75
"""

# tab:imagenet_recipes1: model, optimizer, weight decay, λ, epochs, drop path, momentum, batch, lr, warm-up;
# tab:imagenet_recipes2: magnitude, mixup, cutmix, erase, colour, splits, loss; tab:performance_imagenet: top 1, top 5
TABLE_2 = """
vgg16     sgd     0.00005  0        300  0    0.9  1024  0.05    5  9  0    0  0.6   0    3  jsd            73.13  90.75
vgg16     bort-s  0.00002  0.001    300  0    0.9  1024  0.05    5  9  0    0  0.6   0    3  jsd            73.36  91.06
vgg16     adamw   0.00002  0        300  0    0    1024  0.001   5  9  0    0  0.6   0    3  jsd            64.66  85.11
vgg16     bort-a  0.00002  0.0001   300  0    0    1024  0.001   5  9  0    0  0.6   0    3  jsd            69.75  88.72
resnet50  sgd     0.00002  0        300  0    0.9  1024  0.05    5  9  0    0  0.6   0    3  jsd            76.57  92.92
resnet50  bort-s  0.00002  0.0001   300  0    0.9  1024  0.05    5  9  0    0  0.6   0    3  jsd            77.60  93.31
resnet50  adamw   0.00002  0        300  0    0    1024  0.001   5  9  0    0  0.6   0    3  jsd            76.91  93.33
resnet50  bort-a  0.00002  0.0001   300  0    0    1024  0.001   5  9  0    0  0.6   0    3  jsd            77.61  93.53
resnet50  lamb    0.02     0        300  0    0    2048  0.005   5  7  0.1  1  0     0    3  bce            79.72  94.53
resnet50  bort-l  0.002    0.00002  300  0    0    2048  0.005   5  7  0.1  1  0     0    3  bce            79.90  94.37
deit-s    adamw   0.05     0        300  0.1  0    1024  0.0005  5  9  0.8  1  0.25  0.3  0  cross-entropy  79.79  94.72
deit-s    bort-a  0.005    0.05     300  0.1  0    1024  0.0005  5  9  0.8  1  0.25  0.3  0  cross-entropy  80.41  95.24
swin-s    adamw   0.05     0        300  0.3  0    1024  0.0005  5  9  0.8  1  0.25  0.4  0  cross-entropy  82.63  96.02
swin-s    bort-a  0.005    0.05     300  0.3  0    1024  0.0005  5  9  0.8  1  0.25  0.4  0  cross-entropy  82.71  96.18
"""


def rows(table):
    return [line.split() for line in table.strip().splitlines()]


@pytest.mark.parametrize("row", rows(TABLE_1), ids=lambda row: "-".join(row[:2]))
@pytest.mark.parametrize("data", ["mnist", "cifar10"])
def test_table_1(row, data):
    net, optimizer, *numbers = row
    epochs, lr, decay, constraint, mnist, cifar10 = map(float, numbers)
    recipe = get(f"{data}-{net}-{optimizer}")
    optim = recipe.optim
    assert (recipe.epochs, optim.lr, optim.weight_decay, optim.constraint) == (epochs, lr, decay, constraint)
    assert recipe.paper.top1 == (mnist if data == "mnist" else cifar10)
    assert (recipe.batch, optim.schedule, optim.momentum) == (256, "constant", 0.9)
    assert recipe.augment == type(recipe.augment)(), "no augmentation"


@pytest.mark.parametrize("row", rows(TABLE_2), ids=lambda row: "-".join(row[:2]))
def test_table_2(row):
    net, optimizer, *numbers, loss, top1, top5 = row
    decay, constraint, epochs, drop, momentum, batch, lr, warmup, magnitude, *augment = map(float, numbers)
    recipe = get(f"imagenet-{net}-{optimizer}")
    optim = recipe.optim
    assert (optim.weight_decay, optim.constraint, optim.momentum, optim.lr) == (decay, constraint, momentum, lr)
    assert (recipe.epochs, recipe.batch, optim.warmup_epochs, optim.schedule) == (epochs, batch, warmup, "cosine")
    assert recipe.net.options == ({"drop_path_rate": drop} if drop else {})
    assert recipe.loss == loss
    assert recipe.augment.randaugment == f"rand-m{magnitude:.0f}-mstd0.5"
    a = recipe.augment
    assert [a.mixup, a.cutmix, a.erase, a.color_jitter, a.splits] == augment
    assert (recipe.paper.top1, recipe.paper.top5) == (float(top1), float(top5))


def test_all_rows_and_nothing_else():
    papers = [name for name in names() if get(name).paper]
    small = [name for name in names() if not get(name).paper]
    assert len(papers) == 2 * 4 + 14
    assert len([name for name in small if name.startswith("mnist5k-")]) == 4
    assert len([name for name in small if name.startswith("tiny-imagenet-")]) == 14 + 2, "and ACNN-Base's, for Table 3"
    assert len(small) == 4 + 14 + 2


@pytest.mark.parametrize("row", rows(TABLE_2), ids=lambda row: "-".join(row[:2]))
def test_tiny_imagenet_differs_in_size_only(row):
    """What is cut is cut alike for a baseline and its Bort."""
    epochs, warmup = {"vgg16": (30, 2), "resnet50": (40, 2)}.get(row[0], (60, 3))
    large, small = get(f"imagenet-{row[0]}-{row[1]}"), get(f"tiny-imagenet-{row[0]}-{row[1]}")
    same = replace(
        large,
        name=small.name,
        data=replace(large.data, name="folder:tiny-imagenet-100", image_size=64, classes=100),
        net=replace(large.net, options=large.net.options | ({"patch_size": 8} if row[0] == "deit-s" else {})),
        optim=replace(large.optim, warmup_epochs=warmup),
        epochs=epochs,
        batch=large.batch // 4,
        paper=None,
    )
    assert small == same


def test_digits_are_table_1_in_small():
    for net in ("lenet", "acnn-small"):
        for optimizer in ("sgd", "bort-s"):
            recipe = get(f"mnist5k-{net}-{optimizer}")
            assert recipe.optim == get(f"mnist-{net}-{optimizer}").optim
    narrow = get("mnist5k-acnn-small-sgd").net
    net = nets.create(narrow.name, **narrow.options)
    assert [getattr(net, f"conv{i}").out_channels for i in range(1, 6)] == [8, 24, 72, 108, 324]


@pytest.mark.parametrize("name", names())
def test_json_and_back(name):
    recipe = get(name)
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize("name", names())
def test_every_network_can_be_made(name):
    recipe = get(name)
    data = recipe.data
    shape = {"channels": data.channels, "classes": data.classes, "image_size": data.image_size}
    with torch.device("meta"):
        net = nets.create(recipe.net.name, **shape, **recipe.net.options)
        x = torch.empty(2, data.channels, data.image_size, data.image_size)
        assert net(x).shape == (2, data.classes)


def test_what_makes_no_sense_is_refused():
    recipe = get("mnist-lenet-bort-s")
    with pytest.raises(ValueError, match=r"optim\.constraint=0\.0 in recipe 'mnist-lenet-bort-s'"):
        replace(recipe, optim=replace(recipe.optim, constraint=0.0))
    with pytest.raises(ValueError, match=r"optim\.name='adam'"):
        replace(recipe, optim=replace(recipe.optim, name="adam"))
    with pytest.raises(ValueError, match="epochs=0"):
        replace(recipe, epochs=0)
    with pytest.raises(ValueError, match=r"needs augment\.splits"):
        replace(recipe, loss="jsd")
    with pytest.raises(ValueError, match="no recipe is called 'mnist-lenet'; near it: mnist-lenet-sgd"):
        get("mnist-lenet")


def test_a_file_with_another_field_is_refused_with_its_place():
    values = get("mnist-lenet-sgd").to_dict()
    with pytest.raises(ValueError, match=r"recipe\.optim has no field 'learning_rate'"):
        Recipe.from_dict(values | {"optim": values["optim"] | {"learning_rate": 1}})
    with pytest.raises(ValueError, match="recipe lacks the field 'epochs'"):
        Recipe.from_dict({key: value for key, value in values.items() if key != "epochs"})
    with pytest.raises(ValueError, match=r"recipe\.net must be a table"):
        Recipe.from_dict(values | {"net": "lenet"})


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("optim", {"lr": float("nan")}, r"optim\.lr=nan: must be a finite number"),
        ("optim", {"lr": -0.1}, r"optim\.lr=-0\.1: must be greater than 0"),
        ("optim", {"momentum": 2.0}, r"optim\.momentum=2\.0: must be from 0 to below 1"),
        ("optim", {"name": "bort-a", "momentum": 0.7}, r"bort-a has none of its own"),
        ("optim", {"every": 0}, r"optim\.every=0: must be 1 or more"),
        ("optim", {"scale": 0.0}, r"optim\.scale=0\.0: must be greater than 0, 1 is the paper's"),
        ("optim", {"name": "sgd", "constraint": 0.0, "every": 2}, "sgd has no penalty"),
        ("optim", {"clip": -1.0}, r"optim\.clip=-1\.0: must be greater than 0, or None"),
        ("optim", {"clip": "x"}, r"optim\.clip='x': must be of type float"),
        ("optim", {"warmup_epochs": -2}, "must be 0 or more"),
        ("optim", {"schedule": "linear"}, "choose one of 'constant', 'cosine'"),
        ("optim", {"groups": "x"}, "choose one of 'all', 'modules'"),
        ("augment", {"splits": 1, "crop_and_flip": True}, "augment.splits=1: 0, or 2 and more"),
        ("augment", {"erase": 7.0, "crop_and_flip": True}, "a probability is from 0 to 1"),
        ("net", {"options": {"drop path": 1}}, r"net\.options has a name 'drop path': names are identifiers"),
        ("net", {"options": {"width": float("nan")}}, r"net\.options\.width=nan: must be finite"),
        ("net", {"options": {"width": None}}, r"net\.options\.width=None: must be a number, text or a boolean"),
        ("net", {"options": {"depths": [2, 2]}}, r"net\.options\.depths=\[2, 2\]: must be a number, text or a boolean"),
        (
            "net",
            {"options": {"classes": 5}},
            r"net\.options\.classes=5: the network takes it from the data, set data\.",
        ),
        ("net", {"options": 0.5}, r"net\.options=0\.5: must be of type dict"),
        ("data", {"classes": 0}, r"data\.classes=0: must be 1 or more"),
        ("", {"smoothing": -1.0}, r"smoothing=-1\.0"),
        ("", {"loss": "mse"}, "loss='mse': choose one of 'cross-entropy', 'jsd', 'bce'"),
        ("", {"precision": "fp16"}, "precision='fp16'"),
        ("", {"name": "../up"}, "a recipe's name is the name of a folder"),
        ("", {"epochs": True}, "epochs=True: must be of type int"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_odd_values_are_refused_by_name(part, values, message):
    """In Python as in a file."""
    recipe = get("mnist-lenet-bort-s")
    with pytest.raises(ValueError, match=message):
        replace(recipe, **({part: replace(getattr(recipe, part), **values)} if part else values))
    written = recipe.to_dict()
    (written[part] if part else written).update(values)
    with pytest.raises(ValueError, match=message):
        Recipe.from_dict(written)


def test_options_of_a_network():
    recipe = get("mnist-lenet-sgd")
    options = {"pool": "average", "last": "relu"}
    changed = replace(recipe, net=replace(recipe.net, options=options))
    assert changed != recipe
    assert hash(changed) == hash(replace(changed, net=Net("lenet", dict(options))))
    options["pool"] = "max"
    assert changed.net.options["pool"] == "average", "a recipe keeps a copy"


def test_fields_of_version_0_1_0_say_what_they_have_become():
    with pytest.raises(TypeError, match=r"net\.width is now net\.options\.width"):
        Net("acnn-small", width=0.5)
    net = get("imagenet-deit-s-bort-a").net
    with pytest.raises(TypeError, match=r"net\.drop_path is now net\.options\.drop_path_rate"):
        replace(net, drop_path=0.2)
    with pytest.raises(AttributeError, match=r"net\.drop_path is now net\.options\.drop_path_rate"):
        _ = net.drop_path
    with pytest.raises(AttributeError, match="net has no field 'depth'; there are name and options"):
        _ = net.depth
    assert copy.deepcopy(net) == pickle.loads(pickle.dumps(net)) == net


@pytest.mark.parametrize(
    ("data", "changes", "message"),
    [
        (Data("mnist5k", 28, 1), {"augment": Augment(crop_and_flip=True)}, "only images of a folder are augmented"),
        (Data("folder:x", 28, normalise=False), {}, "images of a folder are always normalised"),
    ],
)
def test_settings_that_belong_to_the_other_kind_of_data(data, changes, message):
    recipe = get("mnist-lenet-sgd")
    with pytest.raises(ValueError, match=f"in recipe 'mnist-lenet-sgd' with data.name='{data.name}': {message}"):
        replace(recipe, data=data, **changes)
    replace(recipe, data=replace(data, name="package.module:function"), **changes)  # known when it is loaded
