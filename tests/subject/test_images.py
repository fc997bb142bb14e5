"""Images that networks are shown."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from bort import nets
from bort.data import View
from bort.subject import Details, Subject, of_models, resolve, resolve_all
from tests.subject.small import network, write_images

HOW = {"size": (8,), "mean": (0.5,) * 3, "std": (0.25,) * 3}
GIVEN = "tests.subject.small:network"


def test_a_flat_folder(tmp_path):
    write_images(tmp_path, ["b.png", "a.jpg", "C.PNG"])
    (tmp_path / "notes.txt").write_text("no image")
    subject = resolve(GIVEN, Details(images=tmp_path, **HOW))
    x, labels = subject.test_images(10)
    assert labels.tolist() == [-1, -1, -1], "nobody says what they show"
    view = subject.view
    assert torch.equal(x, torch.cat([view.read(tmp_path / name) for name in ("C.PNG", "a.jpg", "b.png")]))
    assert subject.test_images(2)[0].shape == (2, 3, 8, 8)
    assert "3 in" in subject.facts["images"]


def test_a_folder_a_class_by_name_and_by_number(tmp_path):
    write_images(tmp_path, [f"{name}/{n}.png" for name in ("two", "four") for n in range(2)])
    (tmp_path / "names.txt").write_text("zero\none\ntwo\nthree\nfour\n")
    details = Details(images=tmp_path, classes=tmp_path / "names.txt", **HOW)
    assert resolve(GIVEN, details).test_images(9)[1].tolist() == [4, 4, 2, 2], "folders in their order: four, two"
    assert resolve(GIVEN, Details(images=tmp_path, **HOW)).test_images(9)[1].tolist() == [-1] * 4
    write_images(tmp_path, ["a/0.png", "b/0.png", "c/0.png"])
    subject = resolve(GIVEN, Details(images=tmp_path, **HOW))
    assert subject.view.class_names == ("a", "b", "c", "four", "two"), "five folders, five classes"
    assert subject.test_images(9)[1].tolist() == [0, 1, 2, 3, 3, 4, 4]


def test_own_images_for_a_run(runs, tmp_path):
    write_images(tmp_path, ["a.png", "b.png"])
    subject = resolve(runs[0], Details(images=tmp_path))
    assert subject.test_images(5)[0].shape == (2, 1, 28, 28)
    assert subject.accuracy is None, "that of its own test images"
    assert "test accuracy" not in subject.facts
    assert subject.recipe


def test_networks_of_different_kinds_see_the_same_images(runs, tmp_path):
    write_images(tmp_path, ["a.png", "b.png"])
    one, other = resolve_all([runs[0], GIVEN], [Details(images=tmp_path), Details(images=tmp_path, **HOW)])
    assert one.test_images(2)[0].shape == (2, 1, 28, 28)
    assert other.test_images(2)[0].shape == (2, 3, 8, 8)


@pytest.mark.parametrize(
    ("details", "message"),
    [
        (
            {},
            r"network sees an image: give size, mean and std, the last two .* \(in a command --size, --mean, --std\)$",
        ),
        ({"size": (2,), "mean": (0.5,) * 3, "std": (1.0,) * 3}, r"network fails on an image of 3×2×2 .*do size"),
        ({"size": (8,), "mean": (0.5,), "std": (1.0,)}, r"fails on an image of 1×8×8 .*expected input\[1, 1, 8, 8\]"),
        (HOW | {"classes": "names.txt"}, r"there are 2 names of classes, but .*network has 5 classes"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path, details, message):
    write_images(tmp_path, ["a.png"])
    (tmp_path / "names.txt").write_text("a\nb")
    if "classes" in details:
        details = details | {"classes": tmp_path / details["classes"]}
    with pytest.raises(ValueError, match=message):
        resolve(GIVEN, Details(images=tmp_path, **details))


def test_a_file_that_is_no_image_is_named(tmp_path):
    write_images(tmp_path, ["a.png"])
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"broken\.png is not a readable image"):
        resolve(GIVEN, Details(images=tmp_path, **HOW)).test_images(5)


def test_a_file_that_has_gone(tmp_path):
    write_images(tmp_path, ["a.png", "b.png"])
    subject = resolve(GIVEN, Details(images=tmp_path, **HOW))
    images, before = subject.image_set(2), subject.image_set(2).fingerprint
    (tmp_path / "b.png").unlink()
    with pytest.raises(ValueError, match=r"there is no image .*b\.png"):
        images.read(1)
    assert images.fingerprint != before


# --- what a program has at hand


def test_models_and_a_tensor():
    x = torch.rand(6, 3, 8, 8)
    one, other = of_models({"one": network(), "other": network().half()}, x, labels=range(6), classes="abcde")
    assert (one.name, other.name) == ("one", "other")
    images, labels = one.test_images(3)
    assert torch.equal(images, x[[0, 2, 4]])
    assert labels.tolist() == [0, 2, 4]
    assert torch.equal(one.view.pixels(images), images), "values from 0 to 1 are pixels"
    assert other.test_images(2)[0].dtype == torch.float16
    assert one.data == other.data
    assert one.view.name(1) == "b"


def test_tensors_are_shown_from_their_smallest_value_to_their_largest():
    (subject,) = of_models(network(), torch.randn(6, 3, 8, 8) * 7)
    pixels = subject.view.pixels(subject.test_images(6)[0])
    assert pixels.min() == 0
    assert pixels.max() == pytest.approx(1)
    (normalised,) = of_models(network(), torch.randn(6, 3, 8, 8), mean=(0.5,) * 3, std=(0.25,) * 3)
    assert normalised.view.std == (0.25,) * 3


def test_models_and_a_folder(tmp_path):
    write_images(tmp_path, ["a.png"])
    (subject,) = of_models(network(), tmp_path, size=8, mean=(0.5,) * 3, std=(0.25,) * 3)
    assert subject.test_images(4)[0].shape == (1, 3, 8, 8)


def test_models_and_data_sets():
    tensors = [(torch.rand(3, 8, 8), n) for n in range(5)]
    (subject,) = of_models({"net": network()}, tensors)
    assert subject.test_images(5)[1].tolist() == [0, 1, 2, 3, 4]
    pictures = [{"image": Image.new("RGB", (12, 9)), "label": 3}]
    (subject,) = of_models(network(), pictures, size=8, mean=(0.5,) * 3, std=(0.25,) * 3)
    assert torch.equal(subject.test_images(1)[0], torch.full((1, 3, 8, 8), -2.0))
    assert subject.test_images(1)[1].tolist() == [3]
    (subject,) = of_models(network(), [torch.rand(3, 8, 8)])
    assert subject.test_images(1)[1].tolist() == [-1]


def test_subjects_and_texts_among_models(runs):
    x = torch.rand(2, 1, 28, 28)
    own = Subject("own", nets.create("lenet"), View(28, 1, (0.5,), (0.5,)))
    both = of_models({"a": own, "b": runs[0], "c": "lenet"}, x)
    assert [subject.name for subject in both] == ["a", "b", "c"]
    assert of_models(own)[0].name == "own"
    assert of_models(shutil.os.fspath(runs[0]))[0].name == "plain"


def test_what_is_given_for_texts_and_subjects(tmp_path):
    """As for modules."""
    write_images(tmp_path, ["a.png"])
    how = {"size": 8, "mean": (0.1,) * 3, "std": (0.2,) * 3, "classes": "abcde"}
    expected = of_models(network(), tmp_path, **how)[0].view
    for model in (GIVEN, Subject("mine", network())):
        assert of_models(model, tmp_path, **how)[0].view == expected
    several = of_models({"a": GIVEN, "b": Subject("mine", network())}, multi_label=True)
    assert [subject.multi_label for subject in several] == [True, True]
    (subject,) = of_models("timm/test_resnet", tmp_path, size=32, classes=("x", "y"))
    assert (subject.view.size, subject.view.class_names, subject.model.num_classes) == (32, ("x", "y"), 2)


@pytest.mark.parametrize("option", [{"size": 32}, {"mean": (0.1,)}, {"std": (0.1,)}, {"classes": "ab"}])
def test_what_runs_and_subjects_have_is_not_changed(runs, tmp_path, option):
    write_images(tmp_path, ["a.png"])
    (name,) = option
    own = Subject("own", nets.create("lenet"), View(28, 1, (0.5,), (0.5,)))
    with pytest.raises(ValueError, match=rf"{name} .*: the Subject own has its own"):
        of_models(own, tmp_path, **option)
    with pytest.raises(ValueError, match=f"{name} .*: a run has its own"):
        of_models({"a": runs[0], "b": own}, **option)


def test_runs_and_subjects_keep_what_they_have_beside_networks_that_need_it(runs, tmp_path):
    write_images(tmp_path, ["a.png"])
    own = Subject("own", nets.create("lenet"), View(28, 1, (0.5,), (0.5,)))
    how = {"size": 8, "mean": (0.1,) * 3, "std": (0.2,) * 3}
    subjects = of_models({"run": runs[0], "own": own, "net": network()}, tmp_path, **how)
    assert [subject.test_images(1)[0].shape[1:] for subject in subjects] == [(1, 28, 28), (1, 28, 28), (3, 8, 8)]


def own():
    """For "tests.subject.test_images:own"."""
    return Subject("own", nets.create("lenet"), View(28, 1, (0.5,), (0.5,)))


def test_a_text_that_returns_a_subject_is_as_the_subject_is(tmp_path):
    write_images(tmp_path, ["a.png"])
    text, how = "tests.subject.test_images:own", {"size": 8, "mean": (0.1,) * 3, "std": (0.2,) * 3}
    subjects = of_models({"own": text, "net": network()}, tmp_path, **how)
    assert [subject.test_images(1)[0].shape[1:] for subject in subjects] == [(1, 28, 28), (3, 8, 8)]
    for model in (text, own()):
        (subject,) = of_models(model, torch.rand(2, 1, 28, 28), mean=(0.1,), std=(0.2,), classes="abcdefghij")
        assert (subject.view.mean, subject.view.class_names) == ((0.1,), tuple("abcdefghij"))
    with pytest.raises(ValueError, match=rf"mean 0\.1: {text} and {text} have their own"):
        of_models({"a": text, "b": text}, tmp_path, mean=(0.1,), std=(0.2,))


def test_mean_and_names_of_tensors_whoever_sees_them(runs):
    x = torch.rand(2, 1, 28, 28)
    own = Subject("own", nets.create("lenet"), View(28, 1, (0.5,), (0.5,)))
    for model in (runs[0], own, "lenet"):
        view = of_models(model, x, size=28, mean=(0.1,), std=(0.2,), classes="abcdefghij")[0].view
        assert (view.mean, view.std, view.class_names) == ((0.1,), (0.2,), tuple("abcdefghij"))
    with pytest.raises(ValueError, match="multi_label True: a run is trained with one class an image"):
        of_models(runs[0], x, multi_label=True)
    run, net = of_models({"run": runs[0], "net": "lenet"}, x, multi_label=True)
    assert (run.multi_label, net.multi_label) == (False, True)


def test_arrays_of_numpy():
    x, labels = np.random.default_rng(0).random((4, 3, 8, 8)), np.array([3, 1, 4, 1])
    for images, given in ((x, labels), (list(zip(x, labels, strict=True)), None)):
        (subject,) = of_models(network(), images, labels=given)
        found, known = subject.test_images(4)
        torch.testing.assert_close(found, torch.as_tensor(x).float())
        assert known.tolist() == labels.tolist()


def test_a_module_of_hugging_face_says_itself_that_an_image_may_have_several_classes():
    import transformers

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    for kind in ("multi_label_classification", "single_label_classification", None):
        config = transformers.ViTConfig(**sizes, image_size=8, patch_size=8, problem_type=kind)
        (subject,) = of_models(transformers.ViTForImageClassification(config))
        assert subject.multi_label == (kind == "multi_label_classification")


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (torch.rand(3, 8, 8), {}, r"images of shape \(3, 8, 8\) .*give floats \(N, channels, height, width\)"),
        (torch.ones(1, 3, 8, 8, dtype=torch.uint8), {}, "type torch.uint8: give floats"),
        (torch.rand(2, 3, 8, 8), {"labels": [1]}, "2 images, but 1 labels"),
        (torch.rand(2, 3, 8, 8), {"mean": (1.0,), "std": (1.0,)}, "mean has 1 numbers, the images have 3 channels"),
        (torch.rand(2, 4, 8, 8), {}, "model fails on an image of 4×8×8"),
        ([], {}, "the data set has no images in it"),
        ([{"text": "a"}], {}, "the data set's items have no image, but text"),
        (["a.png"], {}, r"image 0 of the data set is a str: .*for files give their folder"),
        ([Image.new("RGB", (9, 9))], {}, "it is not known how model sees an image: give size, mean and std"),
        (torch.rand(2, 3, 8, 8), {"size": 9}, "size 9: the images given are 8 × 8, as the networks see them"),
        (torch.rand(2, 3, 8, 8), {"labels": torch.eye(2)}, r"labels of shape \(2, 2\) .*the number of one class"),
        (torch.rand(2, 3, 8, 8), {"labels": [0.0, 1.0]}, r"labels .*float32: give the number of one class"),
        (torch.rand(2, 3, 8, 8), {"labels": ["cat", "dog"]}, "labels cannot be read .*the number of one class"),
        ([(torch.rand(3, 8, 8), torch.eye(2)[0])], {}, r"the label of image 0 is tensor\(.*the number of one class"),
        ([(torch.rand(3, 8, 8), "cat")], {}, "the label of image 0 is 'cat': .*the number of one class"),
        ([torch.rand(3, 8, 8)], {"labels": [1]}, "labels are of images given as a tensor: .*a data set by items"),
        (".", {"labels": [1]}, "labels are of images given as a tensor: a folder says them by"),
        (None, {"labels": [1]}, "labels are of images given as a tensor"),
        (DataLoader([torch.rand(3, 8, 8)]), {}, "images is a DataLoader, .*of a DataLoader give its dataset"),
        (iter([torch.rand(3, 8, 8)]), {}, "images is a list_iterator, whose items have no numbers"),
    ],
)
def test_images_that_do_not_fit(images, options, message):
    with pytest.raises(ValueError, match=message):
        of_models(network(), images, **options)
    with pytest.raises(ValueError, match="there is no model"):
        of_models({})


def test_one_logit_has_two_classes(tmp_path):
    """What is not 1 is 0, and both have names."""
    write_images(tmp_path, ["cat/a.png", "dog/b.png"])
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 1))
    (subject,) = of_models(net, images=tmp_path, size=8, mean=HOW["mean"], std=HOW["std"])
    assert subject.view.class_names == ("cat", "dog")
    assert subject.test_images(2)[1].tolist() == [0, 1]


def test_one_logit_and_one_name(tmp_path):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 1))
    with pytest.raises(
        ValueError, match="'dog' is the only name of a class, but the single logit of model decides between"
    ):
        of_models(net, torch.rand(1, 3, 8, 8), classes=["dog"])
