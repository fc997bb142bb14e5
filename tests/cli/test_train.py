"""`bort train`"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from bort import train
from bort.cli.train import train as command

SHORT = ("mnist5k-lenet-bort-s", "--epochs", "1", "--device", "cpu")


pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own")


@pytest.mark.slow
def test_a_recipe_with_other_settings_then_from_what_it_wrote(bort, tmp_path, capsys):
    bort("train", *SHORT, "--optim.lr", "0.02", "--out", "first", "--tensorboard")
    run = train.load("first")
    assert (run.recipe.epochs, run.recipe.optim.lr, run.recipe.optim.constraint) == (1, 0.02, 0.1)
    assert "mnist5k-lenet-bort-s: " in capsys.readouterr().out
    assert list((tmp_path / "first/tensorboard").iterdir())
    bort("train", "first/recipe.json", "--out", "second")
    again = train.load("second")
    assert again.recipe == run.recipe
    assert again.history[0]["loss"] == run.history[0]["loss"]
    bort("train", "first")
    assert "is complete already" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"was started differently: optim\.lr: 0\.02 → 0\.03\. .*--force$"):
        bort("train", "first", "--optim.lr", "0.03")


def test_the_papers_figures_stay():
    calls = []

    def fit(recipe, out, runtime, *, force):
        calls.append((recipe, str(out), runtime, force))
        raise train.NotFinite("stop here")

    with pytest.raises(SystemExit, match="bort train: stop here"):
        command(["cifar10-lenet-sgd", "--force", "--workers", "3", "--seed", "7", "--augment.mixup", "0"], fit)
    recipe, out, runtime, force = calls[0]
    assert recipe.paper.top1 == 57.35
    assert (recipe.seed, out, runtime.workers, force) == (7, "runs/cifar10-lenet-sgd", 3, True)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((), {"width": 0.125, "narrowest": 72}),
        (("--net.options.width", "0.5"), {"width": 0.5, "narrowest": 72}),
        (("--net.options.width=0.5", "--net.options.narrowest", "4"), {"width": 0.5, "narrowest": 4}),
        (("--net.options", "width=0.5"), {"width": 0.5}),
    ],
)
def test_options_of_the_network(arguments, options):
    """One of them, or all of them."""
    calls = []

    def fit(recipe, out, runtime, *, force):
        calls.append(recipe)
        raise train.NotFinite("stop here")

    with pytest.raises(SystemExit, match="stop here"):
        command(["mnist5k-acnn-small-sgd", *arguments], fit)
    assert calls[0].net.options == options


@pytest.mark.parametrize(
    ("recipe", "arguments", "constraint", "pull"),
    [
        ("mnist5k-lenet-bort-s", ("--optim.pull", "5"), 0.0, 5.0),
        ("mnist5k-lenet-bort-s", ("--optim.pull=5",), 0.0, 5.0),
        ("mnist5k-lenet-bort-s", ("--optim.constraint", "0.2"), 0.2, 0.0),
        ("mnist5k-lenet-bort-s", ("--optim.name", "sgd", "--optim.pull", "0"), 0.0, 0.0),
        ("mnist5k-lenet-sgd", ("--optim.name", "bort-s", "--optim.pull", "5"), 0.0, 5.0),
        ("pulled.json", ("--optim.constraint", "0.2"), 0.2, 0.0),
        ("pulled.json", ("--optim.lr", "0.2"), 0.0, 1.5),
    ],
)
def test_the_pull_replaces_lambda_and_the_other_way_round(tmp_path, recipe, arguments, constraint, pull):
    base = train.recipes.get("mnist5k-lenet-bort-s")
    pulled = replace(base, optim=replace(base.optim, constraint=0.0, pull=1.5))
    (tmp_path / "pulled.json").write_text(json.dumps(pulled.to_dict()))
    calls = []

    def fit(recipe, out, runtime, *, force):
        calls.append(recipe.optim)
        raise train.NotFinite("stop here")

    with pytest.raises(SystemExit, match="stop here"):
        command([recipe, *arguments], fit)
    assert (calls[0].constraint, calls[0].pull) == (constraint, pull)


@pytest.mark.parametrize("held_out", [0, 10])
def test_what_the_accuracy_is_of(tmp_path, capsys, held_out):
    """The paper's figure is one of the test images."""

    def fit(recipe, out, runtime, *, force):
        assert recipe.data.held_out == held_out
        last = {"accuracy": 0.5, "residual": 0.1, "sigma": [0.5, 1.5], "seconds": 1.0}
        return train.Run(tmp_path, recipe, [last], [], None)

    command(["cifar10-lenet-sgd", "--data.held-out", str(held_out)], fit)
    of = "test images (the paper: 57.35%)" if not held_out else "held-out training images"
    assert f"cifar10-lenet-sgd: 50.00% of the {of}, residual 0.100," in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_usage(bort, capsys, arguments):
    with pytest.raises(SystemExit) as end:
        bort("train", *arguments)
    assert end.value.code == (0 if arguments else 2)
    assert "usage: bort train RECIPE [OPTIONS]" in capsys.readouterr().out


def test_every_field_is_an_option(bort, capsys):
    with pytest.raises(SystemExit):
        bort("train", "imagenet-resnet50-bort-l", "--help")
    shown = capsys.readouterr().out
    recipe = train.recipes.get("imagenet-resnet50-bort-l").to_dict()
    del recipe["paper"]
    for name, value in recipe.items():
        for option in [f"{name}.{inner}" for inner in value] if isinstance(value, dict) else [name]:
            assert f"--{option.replace('_', '-')}" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mnist5k-lenet-bort",), "no recipe is called 'mnist5k-lenet-bort'; near it: mnist5k-lenet-bort-s"),
        (("nowhere.json",), r"nowhere\.json is not a run"),
        ((*SHORT, "--optim.constraint", "0"), r"a λ .* greater than 0 belongs to the Bort optimizers"),
        ((*SHORT, "--optim.pull", "0"), r"optim\.pull=0\.0 and optim\.constraint=0\.0 in recipe"),
        ((*SHORT, "--device", "tpu9"), "device='tpu9' is not a device torch knows"),
        ((*SHORT, "--workers", "-1"), "workers=-1: must be 0 or more"),
        ((*SHORT, "--augment.mixup", "0.5"), "only images of a folder are augmented"),
        ((*SHORT, "--net.width", "0.5"), r"--net\.width: net\.width is now net\.options\.width"),
        ((*SHORT, "--net.options.width", "0.5"), "lenet has no option 'width'; it has activation, pool, last"),
        ((*SHORT, "--net.options.pool"), r"--net\.options\.pool needs a value"),
        ((*SHORT, "--net.options", "pool=avg", "--net.options.last", "relu"), "use either"),
        ((*SHORT, "--data.image-size", "32"), "mnist5k has images of 28×28 with 1 channels in 10 classes"),
        ((*SHORT, "--data.name", "folder:nowhere"), "there is no folder .*nowhere"),
        (
            (*SHORT, "--data.name", "mnist", "--data-root", "empty"),
            r"train-images-idx3-ubyte\.gz is not in empty/mnist",
        ),
    ],
    ids=lambda value: "-".join(value[-2:]) if isinstance(value, tuple) else "",
)
def test_errors_are_said_in_a_line_and_leave_nothing(bort, tmp_path, monkeypatch, arguments, message):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # where nothing listens: downloads fail at once
    with pytest.raises(SystemExit, match=message):
        bort("train", *arguments)
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


@pytest.mark.slow
def test_ctrl_c(tmp_path):
    """Exit status 75, and the same command goes on."""
    line = [sys.executable, "-m", "bort", "train", "mnist5k-lenet-sgd", "--epochs", "50", "--device", "cpu"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ) as run:
        assert "epoch 1/50" in run.stdout.readline()
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 75
    assert "stopped by SIGINT at step" in errors
    assert "The same command goes on from there." in errors
    (step,) = [json.loads((path / "manifest.json").read_text())["step"] for path in (tmp_path / "runs").rglob("step-*")]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=os.environ) as run:
        assert f"going on after step {step} of 3150" in run.stdout.readline()
        run.send_signal(signal.SIGTERM)
        time.sleep(0.01)
        run.communicate(timeout=60)
    assert run.returncode == 75
