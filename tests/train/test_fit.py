"""The loop: what it learns, what it writes, and that an interruption changes nothing."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bort import BortS, nets, penalty, train
from bort.optim import scheduled_rate
from bort.train.recipes import Net
from tests.train.small import LENET, RECIPE, STEPS, assert_same, dataset, fit, saved_steps, signal_in_test, stop_at

SEEN = []
"""The batches that `recording_lenet` was trained on."""


def recording_lenet(**shape):
    net = nets.create("lenet", **shape)
    net.register_forward_pre_hook(lambda net, inputs: SEEN.append(inputs[0].clone()) if net.training else None)
    return net


def test_it_is_the_plain_loop(tmp_path):
    """The same steps in ten lines of torch, on every image once an epoch, in another order each time."""
    SEEN.clear()
    recipe = replace(RECIPE, net=Net(f"{__name__}:recording_lenet"), optim=replace(RECIPE.optim, clip=0.5))
    run = fit(tmp_path, recipe)
    data = dataset()
    number = {image.numpy().tobytes(): row for row, image in enumerate(data.normalise(data.train_images))}
    batches = [torch.tensor([number[image.numpy().tobytes()] for image in images]) for images in SEEN]
    epochs = [torch.cat(batches[start : start + 5]).tolist() for start in (0, 5, 10)]
    assert all(sorted(epoch) == list(range(150)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    torch.manual_seed(recipe.seed)
    model = nets.create("lenet")
    optimizer = BortS(model.parameters(), lr=0.02, momentum=0.9, weight_decay=0.01, constraint=0.1)
    for images, rows in zip(SEEN, batches, strict=True):
        loss = torch.nn.functional.cross_entropy(model(images), data.train_labels[rows])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(run.model.state_dict()[name], value, rtol=1e-5, atol=1e-7)


def test_it_learns_and_measures(whole):
    first, *_, last = whole.history
    assert last["loss"] < first["loss"]
    assert last["epoch"] == RECIPE.epochs
    assert last["step"] == STEPS
    assert whole.is_complete
    assert whole.accuracy == last["accuracy"] > first["accuracy"]
    weight = whole.model.conv2.weight.detach()
    sigma = torch.linalg.svdvals(weight.flatten(1).double())
    assert last["layers"]["conv2.weight"]["residual"] == pytest.approx(penalty.residual(weight).item(), rel=1e-5)
    assert last["layers"]["conv2.weight"]["sigma"] == pytest.approx([sigma.min().item(), sigma.max().item()], rel=1e-6)
    assert last["residual"] == max(layer["residual"] for layer in last["layers"].values())


@pytest.mark.parametrize(("groups", "constrained"), [("all", 5), ("modules", 4)])
def test_the_residual_is_the_distance_to_the_constraint(tmp_path, groups, constrained):
    """To WᵀW = 2·I here, in the worst of the layers that are constrained: "modules" leaves the classifier alone."""
    optim = replace(RECIPE.optim, scale=2.0, groups=groups, constraint=0.0, pull=0.5)
    run = fit(tmp_path, replace(LENET, optim=optim, epochs=1))
    weights = {name: p.detach() for name, p in run.model.named_parameters() if p.ndim > 1}
    expected = {name: penalty.residual(weight, scale=2.0).item() for name, weight in weights.items()}
    record = run.history[-1]
    assert groups == "all" or expected["head.weight"] > max(list(expected.values())[:-1])
    assert {name: layer["residual"] for name, layer in record["layers"].items()} == pytest.approx(expected, rel=1e-5)
    assert record["residual"] == pytest.approx(max(list(expected.values())[:constrained]), rel=1e-5)


def test_the_residual_of_a_baseline_is_that_of_its_worst_layer(tmp_path):
    optim = replace(RECIPE.optim, name="sgd", constraint=0.0, groups="modules")
    record = fit(tmp_path, replace(LENET, optim=optim, epochs=1)).history[-1]
    assert record["residual"] == max(layer["residual"] for layer in record["layers"].values())


def test_accuracy_is_that_of_the_model(whole):
    data = dataset()
    outputs = whole.model(data.normalise(data.test_images))
    assert whole.accuracy == (outputs.argmax(dim=1) == data.test_labels).double().mean().item()
    loss = torch.nn.functional.cross_entropy(outputs, data.test_labels)
    assert whole.history[-1]["test_loss"] == pytest.approx(loss.item(), rel=1e-5)
    five = (outputs.topk(5).indices == data.test_labels[:, None]).any(dim=1).double().mean().item()
    assert whole.history[-1]["top5"] == five


def test_the_folder_of_a_run(whole):
    names = {path.name for path in whole.path.iterdir()}
    assert names == {"recipe.json", "environment.json", "history.jsonl", "checkpoints", "lock"}
    assert json.loads((whole.path / "recipe.json").read_text()) == RECIPE.to_dict()
    (start,) = json.loads((whole.path / "environment.json").read_text())
    assert start["versions"]["torch"] == torch.__version__
    mean, std = (s.tolist() for s in dataset().statistics())
    assert start["data"]["fingerprint"] == "0123456789abcdef"
    assert (start["data"]["mean"], start["data"]["std"]) == (mean, std)
    assert start["data"]["class_names"] == list("0123456789")
    assert {"hardware", "commit", "started", "processes", "precision", "device"} <= set(start)
    assert len((whole.path / "history.jsonl").read_text().splitlines()) == RECIPE.epochs
    files = {file.suffix for file in whole.path.rglob("*") if file.is_file()}
    assert files == {".json", ".jsonl", ".safetensors", ""}, "no pickle anywhere"


@settings(max_examples=12, deadline=None)
@given(stops=st.sets(st.integers(1, STEPS), min_size=1, max_size=3))
def test_resumed_is_uninterrupted(whole, tmp_path_factory, stops):
    """At any step, mid-epoch or at a boundary, and several times: the same weights and history to the bit."""
    out = tmp_path_factory.mktemp("stopped")
    for step in sorted(stops):
        with pytest.raises(train.Interrupted, match=f"stopped by SIGTERM at step {step}"):
            fit(out, on_step=stop_at(step))
    assert_same(fit(out), whole)


@pytest.mark.parametrize("save_steps", [1, 4])
def test_resumed_from_an_older_checkpoint(whole, tmp_path, save_steps):
    """A run that was killed goes back to its last checkpoint, and takes back the history that came after it."""

    def die(step):
        if step == 13:
            raise MemoryError("killed")

    with pytest.raises(MemoryError):
        fit(tmp_path, on_step=die, save_steps=save_steps)
    assert_same(fit(tmp_path), whole)


def test_a_signal_during_the_test(whole, tmp_path, monkeypatch):
    """The epoch is trained but not yet recorded: it is tested again, not trained again."""
    signal_in_test(monkeypatch, 2)
    with pytest.raises(train.Interrupted, match="stopped by SIGINT at step 10"):
        fit(tmp_path)
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 1
    monkeypatch.undo()
    steps = []
    assert_same(fit(tmp_path, on_step=steps.append), whole)
    assert steps == [11, 12, 13, 14, 15]


def test_a_finished_run_is_left_alone(whole):
    before = {file: file.read_bytes() for file in whole.path.rglob("*.safetensors")}
    steps = []
    assert_same(fit(whole.path, on_step=steps.append), whole)
    assert steps == []
    assert {file: file.read_bytes() for file in whole.path.rglob("*.safetensors")} == before


def test_started_again_from_its_recipe(whole, tmp_path):
    """What a run writes is enough to repeat it."""
    recipe = train.Recipe.from_dict(json.loads((whole.path / "recipe.json").read_text()))
    assert_same(fit(tmp_path, recipe), whole)


def test_seeds_differ(whole, tmp_path):
    other = fit(tmp_path, replace(RECIPE, seed=1, epochs=1))
    assert other.history[0]["loss"] != whole.history[0]["loss"]


def test_old_checkpoints_go(tmp_path):
    fit(tmp_path, save_steps=2, keep=2)
    assert saved_steps(tmp_path) == [14, 15]


def test_load_needs_a_run(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is not a run or a recipe: it has no recipe\.json"):
        train.load(tmp_path)
    (tmp_path / "recipe.json").write_text(json.dumps(RECIPE.to_dict()))
    with pytest.raises(FileNotFoundError, match="has no checkpoint yet"):
        train.load(tmp_path)


def test_what_is_set_is_given_back(tmp_path):
    """Signal handlers and cuDNN's benchmark mode are as before."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), torch.backends.cudnn.benchmark
    fit(tmp_path, replace(RECIPE, epochs=1))
    assert before == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), torch.backends.cudnn.benchmark)


@pytest.mark.parametrize("name", ["bort-a", "bort-l"])
def test_cosine_and_other_optimizers_resume_too(tmp_path, name):
    optim = replace(RECIPE.optim, name=name, momentum=0.0, lr=1e-3, schedule="cosine", warmup_epochs=1, every=2)
    recipe = replace(RECIPE, optim=optim, smoothing=0.1)
    whole = fit(tmp_path / "whole", recipe)
    for step in (8, 10):  # in an epoch, and at its end, when no step follows before the rate is written down
        with pytest.raises(train.Interrupted):
            fit(tmp_path / "stopped", recipe, on_step=stop_at(step))
    assert_same(fit(tmp_path / "stopped", recipe), whole)
    assert [record["lr"] for record in whole.history] == pytest.approx(
        [1e-3, 1e-3 * 0.6545085, 1e-3 * 0.0244717], rel=1e-5
    )


def test_the_target_can_be_scaled(tmp_path):
    """σ² goes near s − decay/λ, where penalty and decay balance; the loss pulls at it still."""
    optim = replace(RECIPE.optim, lr=1e-2, constraint=2.0, weight_decay=0.2, scale=2.0)
    run = fit(tmp_path, replace(RECIPE, epochs=6, optim=optim))
    for layer in (run.model.conv2, run.model.fc1):
        sigma = torch.linalg.svdvals(layer.weight.flatten(1))
        torch.testing.assert_close(sigma, torch.full_like(sigma, (2 - 0.2 / 2) ** 0.5), rtol=0.15, atol=0)


def test_bfloat16_trains(tmp_path):
    run = fit(tmp_path, replace(RECIPE, precision="bfloat16"))
    assert run.environment[0]["precision"] == "bfloat16"
    assert run.history[-1]["loss"] < run.history[0]["loss"]
    assert run.model.conv1.weight.dtype == torch.float32


def test_checkpoints_have_the_format_of_version_0_1_0(whole):
    """Later versions read what this one writes, and the other way round (tests/train/test_old_runs.py)."""
    keys = {}
    for folder in (whole.path, Path(__file__).parents[1] / "fixtures/0.1.0/bort-s"):
        newest = max((folder / "checkpoints").iterdir())
        keys[folder] = {key for key, _ in json.loads((newest / "state.json").read_text())["dict"]}
        assert set(json.loads((newest / "manifest.json").read_text())) == {"step", "sha256"}
    written, before = keys.values()
    assert written == before
    assert {"model", "optimizer", "generators", "steps", "recorded", "loss_sum", "fingerprint"} <= written


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled(tmp_path):
    """The same training, and a checkpoint with the names of the network, not the compiler's."""
    run = fit(tmp_path / "compiled", LENET, compile=True)
    plain = fit(tmp_path / "plain", LENET)
    assert [record["loss"] for record in run.history] == pytest.approx([r["loss"] for r in plain.history], rel=1e-4)
    assert list(run.model.state_dict()) == list(plain.model.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "losses", "residuals"),
    [
        ("mnist5k-lenet-sgd", [2.2366, 0.7982], [0.7446, 0.7571]),
        ("mnist5k-lenet-bort-s", [2.0487, 0.4715], [0.6024, 0.4520]),
    ],
)
def test_golden_losses(tmp_path, name, losses, residuals):
    """Two epochs on the built-in digits. Other processors and thread counts round differently, by about 0.1% here; anything
    more changes everybody's results."""
    run = train.fit(replace(train.recipes.get(name), epochs=2), tmp_path, train.Runtime(device="cpu"))
    assert [record["loss"] for record in run.history] == pytest.approx(losses, rel=0.01)
    assert [record["residual"] for record in run.history] == pytest.approx(residuals, rel=0.003)


def test_a_pull_in_place_of_a_constraint(tmp_path):
    """λ follows from the length of the training; the history has the pull so far."""
    optim = replace(RECIPE.optim, constraint=0.0, pull=1.5, schedule="cosine", warmup_epochs=1)
    pulled = fit(tmp_path / "pull", replace(RECIPE, optim=optim))
    rates = [scheduled_rate(step, lr=0.02, steps=15, schedule="cosine", warmup=5) for step in range(15)]
    constraint = 1.5 * (1 - 0.9) / sum(rates)
    assert_same(
        fit(tmp_path / "constraint", replace(RECIPE, optim=replace(optim, pull=0.0, constraint=constraint))), pulled
    )
    assert [record["pull"] for record in pulled.history] == pytest.approx(
        [constraint * sum(rates[: 5 * epoch]) / 0.1 for epoch in (1, 2, 3)]
    )
    assert pulled.history[-1]["pull"] == pytest.approx(1.5)
    assert train.read_recipe(tmp_path / "pull").optim.pull == 1.5
    with pytest.raises(ValueError, match=r"optim\.constraint=0\.1 and optim\.pull=1\.5: give λ or the pull"):
        replace(optim, constraint=0.1)


def test_held_out_images(tmp_path):
    recipe = replace(RECIPE, data=replace(RECIPE.data, held_out=5))
    run = fit(tmp_path, recipe)
    assert run.history[-1]["accuracy"] * 30 == pytest.approx(round(run.history[-1]["accuracy"] * 30)), "out of 150 / 5"
    assert run.history[-1]["step"] == 12, "120 images in batches of 32"
    with pytest.raises(ValueError, match=r"data\.held_out=1: 0, or 2 and more"):
        replace(recipe.data, held_out=1)
