"""One step: no update that is not finite, and the layer named."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from bort import BortA, BortL, BortS, nets, train
from bort.optim import Lamb
from bort.train import NotFinite
from bort.train._optimizer import loss_for, optimizer_for, rate
from bort.train.recipes import Net
from tests.train.small import OPTIM, RECIPE, fit, saved_steps, stop_at

BUILT = []
"""The networks that the functions below have built."""


class Root(nn.Module):
    """The identity, with an infinite slope."""

    def forward(self, x):
        return x.detach() + (x - x.detach()).abs().sqrt()


class Poison(nn.Module):
    """NaN from the n-th call on, in training."""

    def __init__(self, at):
        super().__init__()
        self.at, self.calls = at, 0

    def forward(self, x):
        self.calls += self.training
        return x * math.nan if self.calls >= self.at and self.training else x


def lenet_with_poison(at, **shape):
    net = nets.create("lenet", **shape)
    net.fc1 = nn.Sequential(net.fc1, Poison(at))
    BUILT.append(net)
    return net


def lenet_with_infinite_slope(**shape):
    net = nets.create("lenet", **shape)
    net.fc2 = nn.Sequential(net.fc2, Root())
    return net


def lenet_with_large_weight(**shape):
    net = nets.create("lenet", **shape)
    with torch.no_grad():
        net.fc2.weight.mul_(1e14)
        net.head.weight.mul_(1e-14)  # so that the loss is an ordinary number
    return net


def with_net(function, **options):
    return replace(RECIPE, net=Net(f"{__name__}:{function}", options))


def test_nan_in_the_loss(tmp_path):
    with pytest.raises(NotFinite, match=r"the loss is nan at step 7 \(epoch 2\): the output of fc1\.1 is not finite"):
        fit(tmp_path, with_net("lenet_with_poison", at=7), save_steps=6)
    assert saved_steps(tmp_path) == [6], "nothing is saved of a step that was not made"


def test_inf_in_a_gradient(tmp_path):
    with pytest.raises(
        NotFinite, match=r"the gradient of fc2\.0\.\w+ is not finite at step 1 \(epoch 1\); the loss is \d"
    ):
        fit(tmp_path, with_net("lenet_with_infinite_slope"))


def test_a_penalty_that_would_overflow(tmp_path):
    with pytest.raises(
        NotFinite, match=r"the penalty of fc2\.weight overflows at step 1 .*norm of the weight is \d.*e\+14"
    ):
        fit(tmp_path, with_net("lenet_with_large_weight"))


def test_the_weights_are_those_before(tmp_path):
    """Step 4 changes nothing: the weights are those of a run that was stopped after step 3."""
    with pytest.raises(NotFinite, match="step 4"):
        fit(tmp_path / "bad", with_net("lenet_with_poison", at=4))
    weights = BUILT[-1].state_dict()
    with pytest.raises(train.Interrupted):
        fit(tmp_path / "good", with_net("lenet_with_poison", at=99), on_step=stop_at(3))
    for name, value in train.load(tmp_path / "good").model.state_dict().items():
        assert torch.equal(value, weights[name]), name


def test_a_diverging_rate_is_stopped(tmp_path):
    recipe = replace(RECIPE, optim=replace(OPTIM, name="sgd", constraint=0.0, lr=1e20))
    with pytest.raises(NotFinite, match=r"is not finite"):
        fit(tmp_path, recipe)


@pytest.mark.parametrize(
    ("schedule", "end"), [("constant", 0.1), ("cosine", 0.1 * 0.5 * (1 + math.cos(math.pi * 0.98)))]
)
def test_rates(schedule, end):
    """A linear warm-up to the rate at its last step, then constant or half a cosine."""
    optim = replace(OPTIM, lr=0.1, schedule=schedule, warmup_epochs=2)
    recipe = replace(RECIPE, optim=optim, epochs=12)
    rates = [rate(recipe, step, 5) for step in range(60)]
    assert rates[:10] == pytest.approx([0.01 * k for k in range(1, 11)])
    assert rates[-1] == pytest.approx(end)
    assert rates[10] == pytest.approx(0.1)
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))


def test_optimizers_are_what_they_are_called():
    model = nets.create("lenet")
    kinds = {
        "sgd": torch.optim.SGD,
        "bort-s": BortS,
        "adamw": torch.optim.AdamW,
        "bort-a": BortA,
        "lamb": Lamb,
        "bort-l": BortL,
    }
    for name, kind in kinds.items():
        constraint = 0.1 if name.startswith("bort") else 0.0
        momentum = 0.9 if name in ("sgd", "bort-s") else 0.0
        optim = replace(OPTIM, name=name, constraint=constraint, momentum=momentum)
        optimizer = optimizer_for(optim, model, torch.device("cpu"))
        assert type(optimizer) is kind
        assert {p for group in optimizer.param_groups for p in group["params"]} == set(model.parameters())
        assert optimizer.param_groups[0]["weight_decay"] == 0.01


def test_groups_of_modules():
    """Table 2: no decay for biases and norms, the classifier free whatever its name."""
    recipe = train.recipes.get("imagenet-resnet50-bort-a")
    model = nets.create("timm/resnet18", classes=5)
    optimizer = optimizer_for(recipe.optim, model, torch.device("cpu"))
    group_of = {p: group for group in optimizer.param_groups for p in group["params"]}
    assert group_of[model.conv1.weight]["constraint"] == recipe.optim.constraint
    assert group_of[model.fc.weight]["constraint"] == 0
    assert group_of[model.fc.weight]["weight_decay"] == recipe.optim.weight_decay
    assert group_of[model.bn1.weight]["weight_decay"] == group_of[model.fc.bias]["weight_decay"] == 0
    plain = optimizer_for(replace(recipe.optim, name="adamw", constraint=0.0), model, torch.device("cpu"))
    assert "constraint" not in plain.param_groups[0]


def test_losses():
    outputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    soft = torch.nn.functional.one_hot(labels, 4).float()
    plain = torch.nn.functional.cross_entropy(outputs, labels)
    assert loss_for(RECIPE)(outputs, labels) == plain
    torch.testing.assert_close(loss_for(RECIPE)(outputs, soft), plain)
    smooth = loss_for(replace(RECIPE, smoothing=0.1))
    torch.testing.assert_close(
        smooth(outputs, labels), torch.nn.functional.cross_entropy(outputs, labels, label_smoothing=0.1)
    )
    torch.testing.assert_close(smooth(outputs, soft), plain, msg="mixed labels come smoothed already")
    binary = loss_for(replace(RECIPE, loss="bce"))
    torch.testing.assert_close(
        binary(outputs, labels), torch.nn.functional.binary_cross_entropy_with_logits(outputs, soft)
    )
    split = replace(train.recipes.get("imagenet-vgg16-sgd"), smoothing=0.0)
    logits, ones = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([1, 2, 1, 2, 1, 2])
    views = logits.view(3, 2, 4).softmax(dim=2)
    mixture = views.mean(dim=0).log()
    divergence = sum((view * (view.log() - mixture)).sum() / 2 for view in views) / 3
    expected = torch.nn.functional.cross_entropy(logits[:2], ones[:2]) + 12 * divergence
    torch.testing.assert_close(loss_for(split)(logits, ones), expected)
