"""A module in the place of parameters: ``BortA(model, lr=…)``."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

from bort import BortA, BortS, param_groups

from .cases import MAIN, assert_same, train, weights


class Net(nn.Module):
    """With something of each kind: an embedding, a depthwise convolution, a norm, a token and a classifier."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.token = nn.Parameter(torch.randn(1, 1, 6) / 10)
        self.levels = nn.Embedding(5, 6)
        self.depthwise = nn.Conv1d(6, 6, 1, groups=6)
        self.body = nn.Linear(6, 10)
        self.norm = nn.LayerNorm(10)
        self.fc = nn.Linear(10, 4)

    def forward(self, x):
        x = x + self.token[0] + self.levels((x[:, 0] > 0).long())
        return self.fc(self.norm(self.body(self.depthwise(x[..., None])[..., 0])))


EACH = pytest.mark.parametrize(("cls", "options"), MAIN.values(), ids=MAIN)


@EACH
def test_it_is_grouped_by_its_layers_with_the_optimizers_own_settings(cls, options):
    model, other = Net(), Net()
    options = options | {"weight_decay": 0.02}
    optimizer = cls(model, constraint=0.3, **options)
    grouped = cls(param_groups(other, 0.3, 0.02), **options)
    assert [name for name, _ in optimizer.constrained()] == ["body.weight", "depthwise.weight"]
    train(model, optimizer, 3)
    train(other, grouped, 3)
    assert_same(weights(model), weights(other))
    settings = ("param_names", "constraint", "weight_decay", "blocks", "transposed")
    for group, expected in zip(optimizer.param_groups, grouped.param_groups, strict=True):
        assert [group[key] for key in settings] == [expected[key] for key in settings]


def test_defaults_are_those_of_the_optimizer():
    by_name = {
        name: (group["constraint"], group["weight_decay"])
        for group in BortA(params=Net(), lr=1e-3).param_groups
        for name in group["param_names"]
    }
    assert by_name["body.weight"] == (0.1, 0.01), "AdamW's decay, and the paper's λ"
    assert by_name["fc.weight"] == by_name["token"] == by_name["levels.weight"] == (0.0, 0.01)
    assert by_name["fc.bias"] == by_name["norm.weight"] == (0.0, 0.0)


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda model: torch.compile(model, backend="eager"), id="compiled"),
        pytest.param(nn.DataParallel, id="parallel"),
        pytest.param(lambda model: nn.DataParallel(torch.compile(model, backend="eager")), id="both"),
    ],
)
def test_wrapped_modules(wrap):
    model, other = Net(), Net()
    wrapped = wrap(other)
    plain, optimizer = BortS(model, lr=0.1), BortS(wrapped, lr=0.1)
    ours = {id(p) for _, p in optimizer.constrained()}
    assert ours == {id(other.body.weight), id(other.depthwise.weight)}
    train(model, plain, 2)
    train(wrapped, optimizer, 2)
    assert_same(weights(model), weights(other))


@EACH
def test_a_checkpoint_of_param_groups_goes_on(cls, options):
    model = Net()
    optimizer = cls(param_groups(model, 0.3), **options)
    train(model, optimizer, 2)
    other = Net(seed=1)
    resumed = cls(other, constraint=0.1, **options)
    other.load_state_dict(model.state_dict())
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer, 2, first=2)
    train(other, resumed, 2, first=2)
    assert_same(weights(model), weights(other))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_train_on_alike(copied):
    model = Net()
    optimizer = BortA(model, lr=0.01)
    train(model, optimizer, 1)
    other, resumed = copied((model, optimizer))
    train(model, optimizer, 2, first=1)
    train(other, resumed, 2, first=1)
    assert_same(weights(model), weights(other))


def test_a_frozen_module_is_refused():
    with pytest.raises(
        ValueError, match="Net has no parameter that requires a gradient: unfreeze what is to be trained"
    ):
        BortA(Net().requires_grad_(False), lr=1e-3)


@pytest.mark.parametrize(
    "model", [nn.Embedding(3, 4), nn.ModuleDict({"fc": nn.Linear(3, 2)})], ids=["none", "the head"]
)
def test_a_module_without_a_linear_map_to_constrain(model):
    sentence = (
        f"BortA has nothing to constrain: {type(model).__name__} has no linear map that is trained, apart from its"
    )
    with pytest.warns(UserWarning, match=sentence) as caught:
        BortA(model, lr=1e-3)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BortA(model, lr=1e-3, constraint=0)


def test_modules_whose_parameters_are_no_matrices_are_refused():
    model = Net()
    model.body.weight._fsdp_flattened = True  # torch's mark
    with pytest.raises(
        TypeError, match=r"parameter 'body.weight' is a parameter of FSDP1 .* use fully_shard \(FSDP2\)"
    ):
        BortA(model, lr=1e-3)
    BortA(model, lr=1e-3, constraint=0)
