"""Training on a GPU: captured steps of every optimizer and feed, the flag that stops a bad update, checkpoints."""

import math
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bort import BortA, nets, train
from bort.train import NotFinite
from bort.train._capture import CapturedStep, side_stream
from bort.train._feed import Batch
from bort.train._step import Step
from bort.train._world import World
from bort.train.recipes import Augment, Data, Net
from tests.train.small import LENET, RECIPE, fit, result, stop_at, stripes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SGD = replace(RECIPE.optim, name="sgd", constraint=0.0)
LONG = replace(LENET, epochs=6)
BUILT = []
"""The networks that `lenet_with_poison` has built."""


def lenet_with_poison(at, **shape):
    net = nets.create("lenet", **shape)
    net.fc1 = nn.Sequential(net.fc1, Poison(at))
    BUILT.append(net)
    return net


def lenet_with_large_weight(**shape):
    net = nets.create("lenet", **shape)
    with torch.no_grad():
        net.fc2.weight.mul_(1e14)
        net.head.weight.mul_(1e-14)
    return net


def close(one, other, rtol=2e-3):
    (weights, history), (expected, expected_history) = result(one), result(other)
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=rtol, atol=1e-3)
    for record, wanted in zip(history, expected_history, strict=True):
        assert record["loss"] == pytest.approx(wanted["loss"], rel=rtol)


@pytest.fixture
def captures(monkeypatch):
    """A list with an entry for each CUDA graph that was captured."""
    graphs, capture = [], torch.cuda.graph
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **rest: (graphs.append(graph), capture(graph, **rest))[1])
    return graphs


@pytest.mark.parametrize("optim", [SGD, RECIPE.optim], ids=["sgd", "bort-s"])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_captured_steps_are_the_same_steps(tmp_path, captures, optim, clip):
    recipe = replace(LONG, optim=replace(optim, clip=clip))
    graphs = fit(tmp_path / "graphs", recipe, device="cuda")
    assert len(captures) == 2, "one for batches of 32, one for the last of an epoch"
    plain = fit(tmp_path / "plain", recipe, device="cuda", graphs=False)
    assert len(captures) == 2
    cpu = fit(tmp_path / "cpu", recipe)
    close(graphs, plain)
    close(graphs, cpu, rtol=1e-2)


ADAMW = replace(SGD, name="adamw", momentum=0.0, lr=1e-3)
MOVING = {
    "every": replace(RECIPE.optim, every=2),
    "cosine": replace(RECIPE.optim, schedule="cosine", warmup_epochs=1),
    "adamw": replace(ADAMW, schedule="cosine"),
    "bort-a": replace(ADAMW, name="bort-a", constraint=0.5, schedule="cosine", every=3),
    "lamb": replace(ADAMW, name="lamb", schedule="cosine"),
    "bort-l": replace(ADAMW, name="bort-l", constraint=0.5, schedule="cosine", warmup_epochs=2, clip=0.5),
}


@pytest.mark.parametrize("optim", MOVING.values(), ids=MOVING)
def test_what_changes_from_step_to_step_is_in_device_memory(tmp_path, captures, optim):
    recipe = replace(LONG, optim=optim)
    graphs = fit(tmp_path / "graphs", recipe, device="cuda")
    assert len(captures) == 2
    close(graphs, fit(tmp_path / "plain", recipe, device="cuda", graphs=False))
    close(graphs, fit(tmp_path / "cpu", recipe), 2e-2)
    assert train.load(tmp_path / "graphs").environment[-1]["notes"][-1].startswith("steps: in CUDA graphs")


class HostRead(nn.Module):
    """What cannot be captured: Python decides by a number of the device."""

    def forward(self, x):
        return x if x.sum() > -1e9 else -x


def lenet_that_waits(**shape):
    net = nets.create("lenet", **shape)
    net.fc1 = nn.Sequential(net.fc1, HostRead())
    return net


def test_a_network_that_waits_for_the_device_is_not_captured(tmp_path, captures, capsys):
    recipe = replace(LENET, net=Net(f"{__name__}:lenet_that_waits"), optim=MOVING["bort-a"])
    waiting = fit(tmp_path / "waiting", recipe, device="cuda")
    assert captures == []
    assert "steps: launched one kernel at a time, the network waits for the device" in capsys.readouterr().out
    plain = fit(tmp_path / "plain", replace(recipe, net=Net("lenet")), device="cuda", graphs=False)
    assert waiting.history[-1]["loss"] == pytest.approx(plain.history[-1]["loss"], rel=2e-3)


def test_a_run_that_began_on_a_cpu_goes_on_on_a_gpu(tmp_path):
    recipe = replace(LONG, optim=MOVING["adamw"])
    with pytest.raises(train.Interrupted):
        fit(tmp_path / "run", recipe, on_step=stop_at(13))
    close(fit(tmp_path / "run", recipe, device="cuda"), fit(tmp_path / "cpu", recipe), 2e-2)


def test_resumed_captured_steps(tmp_path):
    """Dropout, a schedule and moments go on where they were."""
    recipe = replace(RECIPE, epochs=6, optim=MOVING["bort-a"])
    whole = fit(tmp_path / "whole", recipe, device="cuda")
    with pytest.raises(train.Interrupted):
        fit(tmp_path / "cut", recipe, device="cuda", on_step=stop_at(13))
    resumed = fit(tmp_path / "cut", recipe, device="cuda")
    assert [record["step"] for record in resumed.history] == [record["step"] for record in whole.history]
    close(resumed, whole, rtol=5e-2)


AUGMENTS = {
    "mixed": (Augment("rand-m9-mstd0.5", mixup=0.8, cutmix=1.0, erase=0.5, crop_and_flip=True), "bce"),
    "splits": (Augment("rand-m9-mstd0.5-inc1", erase=0.6, splits=3, crop_and_flip=True), "jsd"),
    "jitter": (Augment(color_jitter=0.4, crop_and_flip=True), "cross-entropy"),
}


@pytest.mark.parametrize("images", ["device", "host", "files"])
@pytest.mark.parametrize(("augment", "loss"), AUGMENTS.values(), ids=AUGMENTS)
def test_augmented_folders_in_graphs(tmp_path, captures, augment, loss, images):
    """Drop path in the network; images gathered, augmented and mixed inside the graph."""
    stripes(tmp_path / "data" / "stripes")
    recipe = replace(
        RECIPE,
        net=Net("timm/deit_tiny_patch16_224", {"drop_path_rate": 0.0, "depth": 2}),
        data=Data("folder:stripes", 32, classes=2),
        optim=replace(MOVING["bort-a"], groups="modules"),
        batch=8,
        epochs=4,
        augment=augment,
        loss=loss,
    )
    options = {"device": "cuda", "data_root": tmp_path / "data", "images": images, "workers": 2}
    graphs = fit(tmp_path / "graphs", recipe, **options)
    assert len(captures) == 1
    close(graphs, fit(tmp_path / "plain", recipe, graphs=False, **options), 2e-2)
    dropped = replace(recipe, net=replace(recipe.net, options={"drop_path_rate": 0.3, "depth": 2}))
    assert fit(tmp_path / "dropped", dropped, **options).is_complete


def test_a_captured_step_of_ddp(tmp_path, captures):
    """NCCL with one process: its kernels are in the graph."""
    dist.init_process_group("nccl", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        ends = []
        for wrap in (lambda net: net, DistributedDataParallel):
            torch.manual_seed(0)
            net = nets.create("lenet", channels=1, classes=10, image_size=28).cuda()
            stream = side_stream(torch.device("cuda", 0))
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                model = wrap(net)
            torch.cuda.current_stream().wait_stream(stream)
            lr = torch.tensor(0.02, device="cuda")
            optimizer = BortA(net.parameters(), lr=lr, constraint=0.1, fused=True, capturable=True)
            step = Step(model, optimizer, nn.CrossEntropyLoss(), Fixed(), torch.device("cuda", 0), False, None)
            train_on = CapturedStep(step, World(torch.device("cuda", 0), 0, 2))
            for number in range(20):
                lr.fill_(0.02 / (1 + number))
                train_on(Batch({"seed": torch.tensor(number, device="cuda")}, 8, 1.0))
            ends.append([p.detach().clone() for p in net.parameters()])
        assert len(captures) == 2
        for one, other in zip(*ends, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    finally:
        dist.destroy_process_group()


class Fixed:
    """A feed whose images are a function of a number."""

    def read(self, batch):
        place = torch.arange(8 * 784, device="cuda").view(8, 1, 28, 28)
        images = torch.sin(place * 0.01 * (1 + batch.inputs["seed"]))
        return images, torch.arange(8, device="cuda")


class Poison(nn.Module):
    """NaN from the n-th call on, counted on the device: a replay counts too."""

    def __init__(self, at):
        super().__init__()
        self.at = at
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return torch.where((self.calls >= self.at) & self.training, math.nan, 1.0) * x


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize(
    "optim",
    [SGD, RECIPE.optim, *(replace(RECIPE.optim, name=name, momentum=0.0) for name in ("bort-a", "bort-l"))],
    ids=lambda o: o.name,
)
def test_a_bad_step_is_not_made(tmp_path, graphs, optim):
    """Noticed at the end of the epoch, 2 steps later; the weights are those of 13 good steps."""
    recipe = replace(LONG, optim=optim)
    poisoned = replace(recipe, net=Net(f"{__name__}:lenet_with_poison", {"at": 14}))
    with pytest.raises(NotFinite, match=r"the loss is nan at step 14 \(epoch 3\): the output of fc1\.1 is not finite"):
        fit(tmp_path / "bad", poisoned, device="cuda", graphs=graphs)
    weights = {name: value.clone() for name, value in BUILT[-1].state_dict().items()}
    with pytest.raises(train.Interrupted):
        fit(tmp_path / "good", recipe, device="cuda", graphs=graphs, on_step=stop_at(13))
    for name, value in train.load(tmp_path / "good").model.state_dict().items():
        key = name.replace("fc1.", "fc1.0.")
        torch.testing.assert_close(weights[key].cpu(), value, rtol=2e-3, atol=1e-4)


def test_a_penalty_that_would_overflow(tmp_path):
    with pytest.raises(NotFinite, match=r"the penalty of fc2\.weight overflows at step 1 "):
        fit(tmp_path, replace(LONG, net=Net(f"{__name__}:lenet_with_large_weight")), device="cuda")


@pytest.mark.parametrize("precision", ["auto", "float32"])
def test_resumed_on_a_gpu(tmp_path, precision):
    """channels_last weights come back with their momentum laid out alike, and dropout goes on where it was."""
    recipe = replace(RECIPE, epochs=6, precision=precision)
    whole = fit(tmp_path / "whole", recipe, device="cuda", graphs=False)
    with pytest.raises(train.Interrupted):
        fit(tmp_path / "cut", recipe, device="cuda", on_step=stop_at(13), graphs=False)
    close(fit(tmp_path / "cut", recipe, device="cuda", graphs=False), whole, rtol=1e-2)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled(tmp_path):
    recipe = replace(LENET, optim=replace(SGD, schedule="cosine"))
    compiled = fit(tmp_path / "compiled", recipe, device="cuda", compile=True)
    close(compiled, fit(tmp_path / "plain", recipe, device="cuda"), rtol=1e-2)
