"""Parameters without their layers: what cannot be a layer's matrix is left out, with one warning."""

import copy
import warnings

import pytest
import timm
import torch
from torch import nn

from bort import BortA, BortS, param_groups


def weight(*shape):
    p = nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(0)) / 9)
    p.grad = torch.zeros_like(p)
    return p


def test_tokens_and_tables_are_left_out_and_announced_once():
    """Also where a library cuts the parameters in two groups, as timm does by weight decay."""
    token, table, layer = weight(1, 1, 8), weight(1, 5, 8), weight(4, 8)
    before = [p.detach().clone() for p in (token, table)]
    with pytest.warns(UserWarning, match=r"BortS\(model, …\) looks at the layers") as caught:
        optimizer = BortS([{"params": [token, layer]}, {"params": [table]}], lr=0.1)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "'0' (1×1×8), like 1 more, cannot be the matrix of a layer and is left unconstrained" in str(
        caught[0].message
    )
    assert [name for name, _ in optimizer.constrained()] == ["0.1"]
    optimizer.step()
    assert all(torch.equal(p, start) for p, start in zip((token, table), before, strict=True))
    assert list(optimizer.residuals()) == ["0.1"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.add_param_group({"params": [weight(1, 3, 8)]})


def test_names_tell_tables_of_two_dimensions():
    table, layer = weight(49, 3), weight(4, 8)
    named = [("layers.0.attn.relative_position_bias_table", table), ("layers.0.mlp.weight", layer)]
    with pytest.warns(UserWarning, match=r"relative_position_bias_table' \(49×3\) cannot be the matrix"):
        optimizer = BortA(named, lr=1e-3)
    assert [p for _, p in optimizer.constrained()] == [layer]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = BortA([table, layer], lr=1e-3)
    assert len(plain.constrained()) == 2, "without names it is a linear layer as any"


def test_depthwise_convolutions_are_announced():
    depthwise = [("a.weight", weight(8, 1, 3, 3)), ("b.weight", weight(16, 1, 3, 3))]
    with pytest.warns(UserWarning, match=r"'a.weight' \(8×1×3×3\), like 1 more, looks like .*param_group_fn=bort"):
        optimizer = BortA(depthwise, lr=1e-3)
    assert len(optimizer.constrained()) == 2


@pytest.mark.filterwarnings("error")
def test_layers_that_look_like_these_are_silent_and_constrained():
    BortA([weight(6, 1, 5, 5)], lr=1e-3)  # LeNet's first layer
    one_output = nn.Sequential(nn.Conv2d(3, 1, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 3, groups=8))
    for optimizer in (BortA(param_groups(one_output), lr=1e-3), BortA(one_output, lr=1e-3)):
        assert len(optimizer.constrained()) == 3
        assert len(copy.deepcopy(optimizer).constrained()) == 3


@pytest.mark.filterwarnings("ignore:.* cannot be the matrix of a layer")
def test_copies_and_checkpoints_leave_out_the_same():
    token, layer = weight(1, 1, 8), weight(4, 8)
    optimizer = BortA([token, layer], lr=1e-3)
    optimizer.step()
    copied = copy.deepcopy(optimizer)
    resumed = BortA([token, layer], lr=1e-3)
    resumed.load_state_dict(optimizer.state_dict())
    for other in (copied, resumed):
        assert [name for name, _ in other.constrained()] == ["0.1"]
        other.step()


@pytest.mark.filterwarnings("ignore:.* cannot be the matrix of a layer")
def test_a_checkpoint_of_before_leaves_the_settings_as_they_are():
    """Version 0.1.0 constrained every parameter of two or more dimensions, and its groups do not know of layers."""
    optimizer = BortA([weight(1, 1, 8), weight(4, 8)], lr=1e-3)
    state = optimizer.state_dict()
    del state["param_groups"][0]["layers_known"]
    optimizer.load_state_dict(state)
    assert [name for name, _ in optimizer.constrained()] == ["0.1"]


@pytest.mark.filterwarnings("ignore:.* cannot be the matrix of a layer")
def test_of_a_vit_only_layers_are_left():
    model = timm.create_model("vit_tiny_patch16_224", depth=1, img_size=32, num_classes=3)
    layers = {id(module.weight) for module in model.modules() if isinstance(module, (nn.Linear, nn.Conv2d))}
    assert {id(p) for _, p in BortA(model.parameters(), lr=1e-3).constrained()} == layers
