"""Weights in the files that other libraries write, each made by the library itself."""

import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from bort import nets
from bort.subject import Details, resolve
from tests.subject.small import network

GIVEN = "tests.subject.small:network"


@pytest.fixture
def trained():
    """Other weights than those the network starts from."""
    model = network()
    with torch.no_grad():
        for value in model.state_dict().values():
            value.copy_(torch.randn_like(value.float()))
    return model


def is_loaded(file, trained):
    loaded = resolve(GIVEN, Details(weights=file)).model.state_dict()
    return all(torch.equal(value, loaded[name]) for name, value in trained.state_dict().items())


def test_a_state_dict(trained, tmp_path):
    torch.save(trained.state_dict(), tmp_path / "model.pt")
    assert is_loaded(tmp_path / "model.pt", trained)


def test_safetensors(trained, tmp_path):
    from safetensors.torch import save_model

    save_model(trained, tmp_path / "model.safetensors")
    assert is_loaded(tmp_path / "model.safetensors", trained)


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile, lambda m: torch.compile(nn.DataParallel(m))])
def test_of_a_wrapped_model(trained, tmp_path, wrap):
    torch.save({"epoch": 3, "model": wrap(trained).state_dict()}, tmp_path / "model.pt")
    assert is_loaded(tmp_path / "model.pt", trained)


def test_with_single_layers_compiled(trained, tmp_path):
    expected = {name: value.clone() for name, value in trained.state_dict().items()}
    trained[0] = torch.compile(trained[0])
    torch.save(trained.state_dict(), tmp_path / "model.pt")
    loaded = resolve(GIVEN, Details(weights=tmp_path / "model.pt")).model.state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in expected.items())


@pytest.mark.filterwarnings("ignore:.*LeafSpec", "ignore:.*does not have many workers", "ignore:.*ModelCheckpoint")
def test_a_checkpoint_of_lightning(trained, tmp_path):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self, model, rate):
            super().__init__()
            self.save_hyperparameters("rate")
            self.inside = model
            self.loss_weight = nn.Parameter(torch.ones(2))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.hparams.rate)

        def training_step(self, batch, _):
            return self.inside(batch[0]).sum() * 0

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(2, 3, 8, 8)))
    options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_steps=1, default_root_dir=tmp_path, **options)
    trainer.fit(Module(trained, 0.0), data)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    assert is_loaded(tmp_path / "last.ckpt", trained)


def test_a_checkpoint_of_timm(tmp_path):
    import timm
    from timm.utils import CheckpointSaver

    model = timm.create_model("test_resnet", num_classes=7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    saver = CheckpointSaver(model, optimizer, checkpoint_dir=str(tmp_path), recovery_dir=str(tmp_path))
    saver.save_checkpoint(0, metric=1.0)
    (tmp_path / "names.txt").write_text("\n".join("abcdefg"))
    details = Details(weights=tmp_path / "last.pth.tar", classes=tmp_path / "names.txt")
    loaded = resolve("timm/test_resnet", details)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.model.state_dict().items())
    assert loaded.view.class_names == tuple("abcdefg")
    assert loaded.facts["weights"].endswith("last.pth.tar")


def prefixed(prefix, model):
    return {prefix + name: value for name, value in model.state_dict().items()}


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("student.", "teacher.", r"student\.\* and teacher\.\*"),
        ("net.", "ema.", r"ema\.\* and net\.\*"),
        ("model.", "ema_model.module.", r"ema_model\.module\.\* and model\.\*"),
        ("", "module.", r"names without a prefix and module\.\*"),
        ("", "ema.", r"names without a prefix and ema\.\*"),
        ("model._orig_mod.", "model.ema.", r"model\._orig_mod\.\* and model\.ema\.\*"),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_two_networks_that_fit_are_refused(trained, tmp_path, first, second, said, swapped):
    """As of teacher and student, or with averaged weights beside the last ones."""
    parts = [prefixed(first, trained), prefixed(second, network())]
    torch.save({"state_dict": {**parts[swapped], **parts[not swapped]}}, tmp_path / "two.ckpt")
    with pytest.raises(ValueError, match=rf"two\.ckpt fit the network more than once, as {said}.*: save the ones"):
        resolve(GIVEN, Details(weights=tmp_path / "two.ckpt"))


def test_one_network_under_two_names_is_no_choice(trained, tmp_path):
    """As in a LightningModule whose loss has the network too."""
    torch.save({"state_dict": prefixed("net.", trained) | prefixed("loss.net.", trained)}, tmp_path / "one.ckpt")
    assert is_loaded(tmp_path / "one.ckpt", trained)


def test_one_that_has_diverged_under_two_names_is_called_that(trained, tmp_path):
    with torch.no_grad():
        trained[0].weight.fill_(torch.nan)
    torch.save({"state_dict": prefixed("net.", trained) | prefixed("loss.net.", trained)}, tmp_path / "one.ckpt")
    with pytest.raises(ValueError, match=r"have diverged: 0\.weight has NaN or Inf"):
        resolve(GIVEN, Details(weights=tmp_path / "one.ckpt"))


def test_a_network_of_other_shapes_beside_it_is_no_choice(trained, tmp_path):
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 128))
    torch.save(prefixed("net.", trained) | prefixed("a.", other), tmp_path / "model.pt")
    assert is_loaded(tmp_path / "model.pt", trained)


def changed(trained, **values):
    return {name: value for name, value in (trained.state_dict() | values).items() if value is not None}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"3.weight": None, "3.bias": None}, r"do not fit the network\. missing in the file: 3\.weight, 3\.bias$"),
        ({"head.weight": torch.ones(2)}, r"only in the file: head\.weight$"),
        ({"3.weight": torch.ones(7, 4)}, r"of another shape: 3\.weight \(7×4 in the file, 5×4 in the network\)"),
        ({"0.weight": torch.full((4, 3, 3, 3), torch.nan)}, r"have diverged: 0\.weight has NaN or Inf"),
    ],
)
def test_what_does_not_fit_is_named(trained, tmp_path, values, message):
    torch.save(changed(trained, **values), tmp_path / "model.pt")
    with pytest.raises(ValueError, match=message):
        resolve(GIVEN, Details(weights=tmp_path / "model.pt"))


def test_many_names_are_cut_short(tmp_path):
    torch.save({f"layer{n}": torch.ones(1) for n in range(9)}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"only in the file: layer0, layer1, layer2, layer3, layer4 and 4 more"):
        resolve(GIVEN, Details(weights=tmp_path / "model.pt"))


class Harmful:
    def __reduce__(self):
        return (Path.touch, (Path("harmed"),))


def test_code_in_a_file_is_not_run(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": trained.state_dict(), "more": Harmful()}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"holds Python objects besides tensors.*Save the weights alone"):
        resolve(GIVEN, Details(weights=tmp_path / "model.pt"))
    torch.save(trained, tmp_path / "whole.pt")
    with pytest.raises(ValueError, match="holds Python objects besides tensors"):
        resolve(GIVEN, Details(weights=tmp_path / "whole.pt"))
    assert not Path("harmed").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.pt", b"no zip", "cannot be read"),
        ("model.safetensors", b"short", "cannot be read"),
        ("model.pt", pickle.dumps({"a": 1}), "holds no state dict|cannot be read"),
    ],
)
def test_files_of_other_kinds(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        resolve(GIVEN, Details(weights=tmp_path / name))
    with pytest.raises(ValueError, match="there is no file nowhere"):
        resolve(GIVEN, Details(weights=Path("nowhere")))


class PartCalledModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.module, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.module(x))


def part_called_module():
    return PartCalledModule()


def averaged():
    return torch.optim.swa_utils.AveragedModel(network())


@pytest.mark.parametrize("make", ["part_called_module", "averaged"])
@pytest.mark.parametrize("prefix", ["", "module.", "net."])
def test_a_network_with_a_part_that_is_called_as_a_wrapper(make, prefix, tmp_path):
    state = {name: torch.full_like(value, 7) for name, value in globals()[make]().state_dict().items()}
    torch.save({prefix + name: value for name, value in state.items()}, tmp_path / "model.pt")
    loaded = resolve(f"tests.subject.test_weights:{make}", Details(weights=tmp_path / "model.pt")).model.state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in state.items())


@pytest.mark.parametrize("logits", [1, 2])
def test_two_classes_may_be_one_logit(logits, tmp_path):
    """The names alone do not say it."""
    weights = nets.create("lenet", classes=logits).state_dict()
    torch.save(weights, tmp_path / "model.pt")
    subject = resolve("lenet", Details(weights=tmp_path / "model.pt", classes=("no", "yes")))
    assert all(torch.equal(value, subject.model.state_dict()[name]) for name, value in weights.items())


def test_two_classes_and_weights_of_three(tmp_path):
    torch.save(nets.create("lenet", classes=3).state_dict(), tmp_path / "model.pt")
    with pytest.raises(ValueError, match="3×84 in the file, 2×84 in the network"):
        resolve("lenet", Details(weights=tmp_path / "model.pt", classes=("no", "yes")))
