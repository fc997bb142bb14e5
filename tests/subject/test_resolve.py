"""What can be looked at, however it is named."""

import gc
import json
import shutil
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

import pytest
import torch
from torch import nn

from bort import train
from bort.data import View
from bort.subject import Details, Missing, Subject, _subject, resolve, resolve_all
from tests.pages import NARROW
from tests.train.small import dataset

VIEW = View(28, 1, (0.5,), (0.5,), tuple("0123456789"))


def module():
    """For ``resolve("tests.subject.test_resolve:module")``."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def sized(image_size=28):
    return nn.Sequential(nn.Flatten(), nn.Linear(image_size**2, 10))


def with_a_view():
    return Subject("own name", module(), VIEW, data="bars")


def with_other_data():
    return replace(with_a_view(), data="rings")


def demanding(width):
    return nn.Linear(width, 2)


def text():
    return "no model"


def changed_recipe(run, copy, **data):
    """A copy of a run with other settings of its data in its recipe."""
    shutil.copytree(run, copy)
    recipe = json.loads((copy / "recipe.json").read_text())
    recipe["data"] |= data
    (copy / "recipe.json").write_text(json.dumps(recipe))
    return copy


# --- runs


def test_a_run(runs):
    subject = Subject.of_run(runs[0])
    run = train.load(runs[0])
    assert subject.name == "plain"
    assert all(torch.equal(p, q) for p, q in zip(subject.model.parameters(), run.model.parameters(), strict=True))
    assert subject.view == run.view()
    assert list(subject.history) == run.history
    assert subject.accuracy == run.accuracy
    facts = {"network": "acnn-small", "network's options": "width 0.05, narrowest 4", "optimizer": "bort-s", "λ": "0.1"}
    assert subject.facts.items() >= facts.items()
    assert subject.facts["test accuracy"] == f"{run.accuracy:.2%}"
    assert "paper's accuracy" not in subject.facts, "the recipe is no row of the paper's"


def test_test_images_of_a_run(runs):
    subject = Subject.of_run(runs[0])
    data = dataset()
    images, labels = subject.test_images(5000)
    torch.testing.assert_close(images, data.normalise(data.test_images))
    assert torch.equal(labels, data.test_labels), "all that there are"
    some, _ = subject.test_images(3)
    assert all(any(torch.equal(image, other) for other in images) for image in some)
    with pytest.raises(ValueError, match="0 images: must be 1 or more"):
        subject.test_images(0)


def test_a_run_without_its_data(runs, tmp_path):
    """What the run has recorded of its data is enough to look at image files."""
    subject = Subject.of_run(changed_recipe(runs[0], tmp_path / "run", name=f"folder:{tmp_path / 'nowhere'}"))
    assert subject.view == Subject.of_run(runs[0]).view
    with pytest.raises(Missing, match=r"the test images of run are not at hand: .*nowhere"):
        subject.test_images(4)


def test_a_run_without_its_data_or_a_record_of_it(runs, tmp_path):
    folder = changed_recipe(runs[0], tmp_path / "run", name=f"folder:{tmp_path / 'nowhere'}")
    (folder / "environment.json").write_text("[]")
    assert Subject.of_run(folder).view is None


def test_a_damaged_run_is_named(runs, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(runs[0], damaged)
    for file in (damaged / "checkpoints").rglob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match=f"the run in {damaged} cannot be read: "):
        Subject.of_run(damaged)


def test_a_diverged_run_is_named(runs):
    run = train.load(runs[0])
    nn.init.constant_(run.model.conv2.weight, torch.nan)
    with pytest.raises(ValueError, match=r"plain has diverged: conv2\.weight has NaN"):
        Subject.of_loaded_run(run)


# --- any model


def test_a_model_and_nothing_else():
    subject = Subject("mine", module())
    assert (subject.view, subject.facts, subject.history, subject.accuracy) == (None, {}, (), None)
    assert subject.device == torch.device("cpu")
    with pytest.raises(Missing, match="mine has no test images"):
        subject.test_images(4)


def test_a_model_without_parameters_is_on_the_cpu():
    assert Subject("nothing", nn.Flatten()).device == torch.device("cpu")


# --- names


@pytest.mark.parametrize(
    ("given", "parameters"),
    [("lenet", 61_706), ("timm/resnet18", 11_689_512), ("tests.subject.test_resolve:module", 7_850)],
)
def test_networks_by_name(given, parameters):
    subject = resolve(given)
    assert subject.name == given
    assert sum(p.numel() for p in subject.model.parameters()) == parameters
    assert subject.facts["network"] == given
    assert subject.facts["parameters"] == f"{parameters:,}"
    assert not subject.model.training
    assert resolve(given, name="mine").name == "mine"


def test_a_run_by_its_folder(runs):
    assert resolve(runs[0]).name == resolve(str(runs[0])).name == "plain"


def test_a_function_that_returns_a_subject():
    subject = resolve("tests.subject.test_resolve:with_a_view")
    assert (subject.name, subject.view) == ("own name", VIEW)
    assert resolve("tests.subject.test_resolve:with_a_view", name="other").name == "other"


def test_a_size_for_networks_that_take_one():
    assert resolve("tests.subject.test_resolve:sized", Details(size=(32,))).model[1].in_features == 1024


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (
            "lenett",
            {},
            "'lenett' is neither the folder of a run nor a network: .*lenet.*, timm/<name>, hf:FOLDER or package.module",
        ),
        ("runs/nowhere", {}, "'runs/nowhere' is neither the folder of a run nor a network"),
        ("timm/resnet1818", {}, "timm has no network called 'resnet1818'"),
        ("tests.nowhere:module", {}, r"there is no module 'tests\.nowhere'"),
        ("tests.subject.test_resolve:nothing", {}, "has no 'nothing'"),
        ("tests.subject.test_resolve:text", {}, r"returns a str, not a torch\.nn\.Module or a bort\.subject\.Subject"),
        (
            "tests.subject.test_resolve:demanding",
            {},
            r"demanding\(\) cannot be called: missing a required argument: 'width'",
        ),
        ("tests.subject.test_resolve:module", {"pretrained": True}, "pretrained: .*module has no parameter weights"),
        ("lenet", {"pretrained": True}, "pretrained: there are no weights of lenet to download"),
        ("lenet", {"mean": (0.1,)}, "mean alone: give mean and std"),
        ("lenet", {"mean": (0.1,), "std": (1.0, 1.0), "size": (28,)}, "mean has 1 numbers, std 2"),
        ("lenet", {"mean": (0.1,), "std": (0.0,), "size": (28,)}, r"std 0\.0: must be above 0"),
        ("timm/resnet18", {"size": (1, 2, 3)}, "size 1 2 3: give a side, or height and width"),
        ("hf:nowhere", {}, r"nowhere is no Hugging Face checkpoint: it has no config\.json"),
        ("timm/resnet18", {"images": Path("tests")}, "tests has no images in it"),
        ("timm/resnet18", {"images": Path("nowhere")}, "there is no folder nowhere of images"),
        ("timm/resnet18", {"classes": Path("nowhere.txt")}, r"the names of classes in nowhere\.txt cannot be read"),
    ],
)
def test_names_of_nothing(given, options, message):
    with pytest.raises(ValueError, match=message):
        resolve(given, Details(**options))


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(ValueError, match=f"the run in {tmp_path} cannot be read: .* is not a run"):
        resolve(tmp_path)


def test_a_file_of_weights_is_not_called_damaged(tmp_path):
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "model.pt")
    for read in (resolve, train.read_recipe, train.load):
        with pytest.raises(ValueError, match=r"model\.pt'? is neither the folder of a run nor a"):
            read(str(tmp_path / "model.pt"))


def test_one_of_a_runs_checkpoints(tmp_path):
    """An earlier one than the newest: its weights, and the history until then."""
    run = shutil.copytree("tests/fixtures/0.1.0/bort-s", tmp_path / "run")
    earlier = next(Path("tests/fixtures/0.1.0/stopped/checkpoints").glob("step-*"))
    shutil.copytree(earlier, run / "checkpoints" / earlier.name)
    subject = resolve(run / "checkpoints" / earlier.name)
    assert len(subject.history) == 1
    assert len(resolve(run).history) == 2
    expected = train.load("tests/fixtures/0.1.0/stopped").model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in subject.model.state_dict().items())


def test_a_run_has_its_own_size(runs):
    with pytest.raises(ValueError, match="size 64: a run has its own"):
        resolve(runs[0], Details(size=(64,)))


# --- several


def test_short_names_that_differ(runs, tmp_path):
    assert [s.name for s in resolve_all(runs)] == ["plain", "<b>&$\\alpha$"]
    shutil.copytree(runs[0], tmp_path / "plain")
    assert [s.name for s in resolve_all([runs[0], tmp_path / "plain"])] == ["1-plain", "2-plain"]
    assert [s.name for s in resolve_all(["lenet", "tests.subject.test_resolve:module"])] == [
        "lenet",
        "tests.subject.test_resolve:module",
    ]


def test_runs_on_different_data(runs, tmp_path):
    other = changed_recipe(runs[0], tmp_path / "other", name="mnist")
    with pytest.raises(ValueError, match=r"different data \(plain on tests\.train\.small:dataset; other on mnist\)"):
        resolve_all([runs[0], other])
    with pytest.raises(
        ValueError, match=r"with_a_view on bars; .*with_other_data on rings.*Details\(images=FOLDER\) \(in a"
    ):
        resolve_all(["tests.subject.test_resolve:with_a_view", "tests.subject.test_resolve:with_other_data"])
    with pytest.raises(ValueError, match=r"different data \(plain on .*; lenet on unknown images\)"):
        resolve_all([runs[0], "lenet"])


def test_none_at_all():
    with pytest.raises(ValueError, match="name the folder of a run, or a network"):
        resolve_all([])


def test_facts_leave_out_what_is_usual(runs):
    run = train.load(runs[0])
    raw = replace(run, recipe=replace(NARROW, data=replace(NARROW.data, normalise=False)))
    assert Subject.of_loaded_run(raw).facts["inputs"] == "as they are"
    assert "inputs" not in Subject.of_loaded_run(run).facts


@pytest.mark.parametrize("held_out", [0, 10])
def test_an_accuracy_on_held_out_images_does_not_stand_beside_the_papers(runs, held_out):
    paper = train.recipes.get("cifar10-lenet-sgd").paper
    recipe = replace(NARROW, data=replace(NARROW.data, held_out=held_out), paper=paper)
    facts = Subject.of_loaded_run(replace(train.load(runs[0]), recipe=recipe)).facts
    assert ("paper's accuracy" in facts, "held out" in facts) == (not held_out, bool(held_out))


def test_runs_on_the_same_data_read_them_once(monkeypatch):
    read = []
    load = train.Run.data
    monkeypatch.setattr(_subject, "_open_data", WeakValueDictionary())  # other tests may have read the same data
    monkeypatch.setattr(train.Run, "data", lambda run, root=None: read.append(run) or load(run, root))
    first, second = resolve_all(["tests/fixtures/0.1.0/bort-s", "tests/fixtures/0.1.0/sgd"])
    images = [subject.test_images(3)[0] for subject in (first, second)]
    assert torch.equal(*images)
    assert len(read) == 1
    del first, second
    gc.collect()
    (again,) = resolve_all(["tests/fixtures/0.1.0/bort-s"])
    again.test_images(3)
    assert len(read) == 2, "nothing is kept for runs that nobody looks at any more"
