"""Images that networks are shown."""

import shutil

import pytest
import torch
from PIL import Image

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
        ({}, "it is not known how .*network sees an image: give size, mean and std"),
        ({"size": (2,), "mean": (0.5,) * 3, "std": (1.0,) * 3}, r"network fails on an image of 3×2×2 .*do size"),
        ({"size": (8,), "mean": (0.5,), "std": (1.0,)}, r"fails on an image of 1×8×8 .*expected input\[1, 1, 8, 8\]"),
        (HOW | {"classes": "names.txt"}, r"there are 2 names of classes, but .*network has 5 outputs"),
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
        ([Image.new("RGB", (9, 9))], {}, "it is not known how model sees an image: give size, mean and std"),
    ],
)
def test_images_that_do_not_fit(images, options, message):
    with pytest.raises(ValueError, match=message):
        of_models(network(), images, **options)
    with pytest.raises(ValueError, match="there is no model"):
        of_models({})
