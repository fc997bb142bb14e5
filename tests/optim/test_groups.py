"""Which weights are constrained, each with its reason."""

import re

import pytest
import timm
import torch
from torch import nn

from bort import BortS, param_groups
from bort.optim import ParamGroups


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        self.conv = nn.Conv2d(3, 8, 3)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.grouped = nn.Conv1d(8, 16, 3, groups=2, bias=False)
        self.up = nn.ConvTranspose3d(8, 4, 2)
        self.attention = nn.MultiheadAttention(8, 2, add_bias_kv=True)
        self.norm = nn.LayerNorm([4, 8])
        self.batch_norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(8, 8)
        self.position = nn.Parameter(torch.zeros(1, 5, 8))
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, 3)


def decisions(model, **options):
    return {d.name: d for d in param_groups(model, **options).decisions}


def test_every_kind_of_parameter_gets_its_reason():
    reasons = {name: (d.constrained, d.reason) for name, d in decisions(Everything()).items()}
    assert reasons == {
        "position": (False, "not a known linear map: position of Everything"),
        "embed.weight": (False, "embedding: a look-up, not a linear map of its input"),
        "conv.weight": (True, "convolution"),
        "conv.bias": (False, "bias"),
        "depthwise.weight": (True, "depthwise convolution, 8 blocks"),
        "depthwise.bias": (False, "bias"),
        "grouped.weight": (True, "grouped convolution, 2 blocks"),
        "up.weight": (True, "transposed convolution"),
        "up.bias": (False, "bias"),
        "attention.in_proj_weight": (True, "attention in-projection, one matrix"),
        "attention.in_proj_bias": (False, "bias"),
        "attention.bias_k": (False, "bias"),
        "attention.bias_v": (False, "bias"),
        "attention.out_proj.weight": (True, "linear"),
        "attention.out_proj.bias": (False, "bias"),
        "norm.weight": (False, "norm"),
        "norm.bias": (False, "norm"),
        "batch_norm.weight": (False, "1-dimensional"),
        "batch_norm.bias": (False, "bias"),
        "linear.weight": (True, "linear"),
        "linear.bias": (False, "bias"),
        "frozen.weight": (False, "frozen"),
        "frozen.bias": (False, "frozen"),
        "head.weight": (False, "excluded by 'head.*'"),
        "head.bias": (False, "bias"),
    }


def test_groups_go_straight_into_an_optimizer():
    model = Everything()
    groups = param_groups(model, constraint=0.2, weight_decay=0.05)
    optimizer = BortS(groups, lr=0.1)
    by_name = {
        name: (g["constraint"], g["weight_decay"], g["blocks"], g["transposed"])
        for g in optimizer.param_groups
        for name in g["param_names"]
    }
    assert by_name["conv.weight"] == (0.2, 0.05, 1, False)
    assert by_name["depthwise.weight"] == (0.2, 0.05, 8, False)
    assert by_name["up.weight"] == (0.2, 0.05, 1, True)
    assert by_name["embed.weight"] == by_name["head.weight"] == by_name["position"] == (0.0, 0.05, 1, False)
    assert by_name["conv.bias"] == by_name["norm.weight"] == by_name["attention.bias_k"] == (0.0, 0.0, 1, False)
    assert set(by_name) == {name for name, p in model.named_parameters() if p.requires_grad}
    assert "depthwise.weight" in optimizer.residuals()


def test_fused_qkv_whole_or_split():
    model = timm.create_model("vit_tiny_patch16_224", depth=1, num_classes=2, img_size=32)
    name = "blocks.0.attn.qkv.weight"
    assert decisions(model)[name].blocks == 1
    assert decisions(model, qkv="split")[name].blocks == 3
    assert decisions(Everything(), qkv="split")["attention.in_proj_weight"].blocks == 3
    assert not decisions(model)["pos_embed"].constrained
    with pytest.raises(ValueError, match="qkv='thirds'"):
        param_groups(model, qkv="thirds")


def test_separate_in_projections():
    model = nn.Sequential(nn.MultiheadAttention(8, 2, kdim=4, vdim=6))
    assert [d.name for d in decisions(model).values() if d.constrained] == [
        "0.q_proj_weight",
        "0.k_proj_weight",
        "0.v_proj_weight",
        "0.out_proj.weight",
    ]


def test_tied_weights_are_listed_once():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    groups = param_groups(model)
    assert [d.name for d in groups.decisions] == ["0.weight"]
    assert groups.decisions[0].constrained


@pytest.mark.parametrize("embedding_first", [True, False])
def test_a_weight_tied_to_an_embedding_is_left_alone(embedding_first):
    model = nn.ModuleDict()
    layers = {"embed": nn.Embedding(9, 4), "out": nn.Linear(4, 9, bias=False)}
    for name in layers if embedding_first else reversed(layers):
        model[name] = layers[name]
    model["out"].weight = model["embed"].weight
    (decision,) = param_groups(model).decisions
    assert not decision.constrained
    assert "shared by" in decision.reason
    assert "embed.weight: embedding" in decision.reason


def test_transformers_linear_is_known_as_transposed():
    from transformers.pytorch_utils import Conv1D

    decision = decisions(nn.Sequential(Conv1D(12, 4)))["0.weight"]
    assert (decision.constrained, decision.transposed) == (True, True)


def test_parametrized_weights_are_not_mistaken_for_the_matrix():
    model = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    assert not any(d.constrained for d in param_groups(model).decisions)


def test_factors_of_lora_are_left_alone():
    layer = nn.Linear(4, 4)
    layer.lora_A, layer.lora_B = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)
    by_name = decisions(nn.Sequential(layer))
    assert by_name["0.weight"].constrained
    for name in ("0.lora_A.weight", "0.lora_B.weight"):
        assert not by_name[name].constrained
        assert "LoRA" in by_name[name].reason


def test_exclude_takes_shell_patterns():
    by_name = decisions(Everything(), exclude=("conv.*", "attention.*", "head.weight"))
    assert by_name["conv.weight"].reason == "excluded by 'conv.*'"
    assert by_name["attention.in_proj_weight"].reason == "excluded by 'attention.*'"
    assert by_name["linear.weight"].constrained


def test_exclude_can_be_one_pattern_and_looks_through_wrappers():
    model = nn.Sequential()
    model.module = nn.Module()
    model.module.head = nn.Linear(3, 2)
    model.module.body = nn.Linear(3, 3)
    by_name = decisions(model, exclude="head.*")
    assert by_name["module.head.weight"].reason == "excluded by 'head.*'"
    assert by_name["module.body.weight"].constrained


def test_a_pattern_that_matches_nothing_is_announced():
    with pytest.warns(UserWarning, match=r"no parameter's name matches 'fc9\.\*'"):
        param_groups(Everything(), exclude=("head.*", "fc9.*"))


class Named(nn.Module):
    """Two layers, the last of them under a name."""

    def __init__(self, name):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.add_module(name, nn.Linear(4, 3))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["head", "fc", "_fc", "classifier", "head_dist"])
def test_the_classifier_is_left_out_by_its_name(name):
    assert not decisions(Named(name))[f"{name}.weight"].constrained
    assert decisions(Named(name), exclude=())[f"{name}.weight"].constrained
    assert decisions(nn.Sequential(Named(name)))[f"0.{name}.weight"].reason == f"excluded by '0.{name}.*'"
    assert decisions(Named("top"))["top.weight"].constrained


def test_a_layer_that_every_block_has_is_no_classifier():
    model = nn.ModuleDict({"blocks": nn.Sequential(Named("fc"), Named("fc"))})
    assert all(d.constrained for d in decisions(model).values() if d.name.endswith("weight"))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("vgg11", "classifier.6.weight"),
        ("squeezenet1_0", "classifier.1.weight"),
        ("vit_b_16", "heads.head.weight"),
        ("mobilenet_v3_small", "classifier.3.weight"),
        ("densenet121", "classifier.weight"),
    ],
)
def test_classifiers_of_torchvision(model, expected):
    torchvision = pytest.importorskip("torchvision")
    with torch.device("meta"):
        by_name = decisions(torchvision.models.get_model(model))
    assert [name for name, d in by_name.items() if d.reason.startswith("excluded")] == [expected]


def test_a_classifier_that_the_patterns_miss_is_named():
    with pytest.warns(
        UserWarning,
        match=r"matches 'head.\*'; the classifier seems to be fc: exclude=\('fc.\*',\) leaves it unconstrained",
    ):
        param_groups(Named("fc"), exclude=("head.*",))


@pytest.mark.filterwarnings("error")
def test_without_a_classifier_in_sight_the_usual_pattern_is_silent():
    param_groups(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), exclude=("head.*",))
    param_groups(Named("head"), exclude=("head.*",))
    param_groups(Named("fc"), exclude=("fc.*",))


def test_a_notebook_shows_the_table_and_no_weights():
    groups = param_groups(Named("head"))
    assert repr(groups) == str(groups)
    assert "tensor" not in repr(groups)
    page = groups._repr_html_()
    assert [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)] == [
        re.split(r"  +", line) for n, line in enumerate(str(groups).replace("'", "&#x27;").splitlines()) if n != 1
    ]


def test_interleaved_qkv_is_not_cut_in_thirds():
    model = nn.ModuleDict({"query_key_value": nn.Linear(4, 12)})
    assert decisions(model, qkv="split")["query_key_value.weight"].blocks == 1


def test_the_table_reads():
    text = str(param_groups(Everything()))
    line = next(line for line in text.splitlines() if line.startswith("depthwise.weight"))
    assert line.split()[1:4] == ["8×1×3×3", "yes", "yes"]
    assert isinstance(param_groups(Everything()), ParamGroups)


def test_lazy_models_are_told_to_run_first():
    with pytest.raises(ValueError, match="'weight' has no shape yet"):
        param_groups(nn.LazyLinear(3))


@pytest.mark.parametrize(
    "name", ["resnet50", "vgg16", "swin_tiny_patch4_window7_224", "convnext_tiny", "mobilenetv3_small_100"]
)
def test_real_networks_have_a_decision_for_every_parameter(name):
    with torch.device("meta"):
        model = timm.create_model(name)
    head = model.default_cfg["classifier"]
    groups = param_groups(model)
    assert sum(len(group["params"]) for group in groups) == sum(1 for _ in model.parameters())
    constrained = {d.name for d in groups.decisions if d.constrained}
    for path, module in model.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)) and path != head:
            assert f"{path}.weight" in constrained
