"""Whole trainings under DDP, FSDP2 and tensor parallelism, against one process with all the data."""

import pytest

pytestmark = pytest.mark.slow

MODELS = ["lenet", "acnn", "vit block", "grouped", "tied"]
OPTIMIZERS = ["BortS", "BortA", "BortL"]


def layouts(ranks, model, optimizer):
    """Those to try for a model and an optimizer: the rarer ones once."""
    names = ["ddp", "ddp shard", "fsdp"]
    if optimizer == "BortS":
        names += ["fsdp columns", "fsdp offload"] + (["hsdp"] if ranks == 4 else [])
    if ranks == 4 and model == "vit block":
        names.append("fsdp x tp")
    return names


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_ten_steps_are_those_of_one_process(pools, ranks, model, optimizer):
    for layout in layouts(ranks, model, optimizer):
        for weights, residuals in pools(ranks).run("train", name=model, optimizer_name=optimizer, layout=layout):
            assert weights < 1e-10, layout
            assert residuals < 1e-6, layout


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_ten_steps_in_float32(pools, model, optimizer):
    """With an ε that Adam's quotient feels: at 1e-8 it makes whole steps of gradients that are nothing but rounding."""
    settings = {} if optimizer == "BortS" else {"eps": 1e-3}
    for layout in ("ddp", "fsdp"):
        for weights, residuals in pools(2).run(
            "train", name=model, optimizer_name=optimizer, layout=layout, dtype="float32", **settings
        ):
            assert weights < 1e-5, layout
            assert residuals < 1e-5, layout


@pytest.mark.parametrize("model", ["vit block", "grouped"])
def test_ten_steps_to_the_initial_scale(pools, model):
    for layout in ("ddp shard", "fsdp", "fsdp offload"):
        for weights, residuals in pools(2).run(
            "train", name=model, optimizer_name="BortA", layout=layout, scale="initial"
        ):
            assert weights < 1e-10, layout
            assert residuals < 1e-6, layout


@pytest.mark.parametrize("layout", ["ddp", "fsdp", "fsdp root"])
def test_a_module_in_the_place_of_parameters(pools, layout):
    for names, expected in pools(2).run("constrained_layers", layout=layout):
        assert names == expected


@pytest.mark.parametrize("model", ["lenet", "grouped"])
def test_options_of_lamb(pools, model):
    """Caution takes the mean of a mask over the whole weight."""
    options = {"caution": True, "capturable": True}
    for weights, _ in pools(2).run("train", name=model, optimizer_name="BortL", layout="fsdp", **options):
        assert weights < 1e-10


PRACTICES = {
    "accumulation": {"accumulate": 2},
    "clipping": {"clip": 0.01},
    "grad scaler": {"scaled": True},
    "grad scaler and clipping": {"scaled": True, "clip": 0.01},
    "a step that overflows": {"scaled": True, "overflow": 1},
}


@pytest.mark.parametrize("practice", PRACTICES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("layout", ["ddp", "fsdp"])
def test_practices(pools, practice, optimizer, layout):
    differences = pools(2).run(
        "train",
        name="lenet",
        optimizer_name=optimizer,
        layout=layout,
        steps=4,
        practice=tuple(PRACTICES[practice].items()),
    )
    for weights, residuals in differences:
        assert weights < 1e-10
        assert residuals < 1e-6


@pytest.mark.parametrize(
    ("layout", "practice"), [("ddp", (("autocast", True),)), ("fsdp", (("autocast", True),)), ("fsdp bf16", ())]
)
def test_mixed_precision(pools, layout, practice):
    """bfloat16 in the network: the penalty itself stays exact, so the residuals hardly differ."""
    for weights, residuals in pools(2).run(
        "train", name="lenet", optimizer_name="BortS", layout=layout, dtype="float32", steps=4, practice=practice
    ):
        assert weights < 1e-3
        assert residuals < 1e-4


@pytest.mark.parametrize(("optimizer", "scale"), [*((name, 1.0) for name in OPTIMIZERS), ("BortA", "initial")])
def test_a_checkpoint_of_four_ranks_goes_on_with_two_and_one(pools, tmp_path, optimizer, scale):
    arguments = {
        "path": str(tmp_path / "checkpoint"),
        "name": "lenet",
        "optimizer_name": optimizer,
        "steps": 3,
        "every": 2,
        "scale": scale,
    }
    pools(4).run("save", **arguments)
    assert max(pools(2).run("load_and_go_on", **arguments)) < 1e-10
    assert max(pools(1).run("load_and_go_on", **arguments)) < 1e-10
    assert max(pools(1).run("load_and_go_on", layout="plain", **arguments)) < 1e-10


def test_zero_redundancy_optimizer(pools):
    assert max(pools(2).run("zero_redundancy")) < 1e-10
