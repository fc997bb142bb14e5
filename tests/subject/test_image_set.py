"""Test images that are read one by one: the same as all at once, from every source."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from bort.data import Folder
from bort.subject import Details, ImageSet, Missing, Subject, of_models, resolve
from tests.subject.small import network, write_images

HOW = {"size": (8,), "mean": (0.5,) * 3, "std": (0.25,) * 3}


class Pairs(list):
    """A data set that lists its labels, as torchvision's do."""

    targets = (3, 1, 4)


def sources(runs, folder):
    write_images(folder, ["a/0.png", "b/1.png", "c/2.png"])
    tensor = torch.rand(3, 3, 8, 8)
    return {
        "a run": resolve(runs[0]),
        "a folder": resolve("tests.subject.small:network", Details(images=folder, **HOW)),
        "a tensor": of_models(network(), tensor, labels=[3, 1, 4])[0],
        "a list": of_models(network(), [(image, n) for n, image in enumerate(tensor)])[0],
        "labels that are listed": of_models(network(), Pairs(zip(tensor, Pairs.targets, strict=True)))[0],
    }


@pytest.mark.parametrize("kind", ["a run", "a folder", "a tensor", "a list", "labels that are listed"])
def test_one_by_one_and_all_at_once(runs, tmp_path, kind):
    subject = sources(runs, tmp_path)[kind]
    images, labels = subject.test_images(10_000)
    found = subject.image_set(5)
    assert len(found) == len(images)
    for place in (0, len(images) - 1):
        image, label = found.read(place)
        assert torch.equal(image, images[place : place + 1])
        assert label == labels[place] == found.label(place)
    some, known = found.at([2, 0])
    assert torch.equal(some, images[[2, 0]])
    assert known.tolist() == labels[[2, 0]].tolist()
    assert torch.equal(subject.test_images(2)[0], images[[0, len(images) // 2]]), "spread evenly"


def test_what_is_known_without_reading(runs, tmp_path):
    known = {kind: subject.image_set(5).labels.tolist() for kind, subject in sources(runs, tmp_path).items()}
    assert known["a tensor"] == known["labels that are listed"] == [3, 1, 4]
    assert known["a list"] == [-1, -1, -1]
    assert len(known["a run"]) == 50
    odd = Pairs(torch.rand(3, 3, 8, 8))
    for targets in (["a.xml", "b.xml", "c.xml"], [0, 1], [0.5, 1.5, 2.5], [[0, 1], [1, 1], [2, 2]]):
        odd.targets = targets
        assert of_models(network(), odd)[0].image_set(5).labels.tolist() == [-1, -1, -1]


def test_fingerprints_tell_images_apart(runs, tmp_path):
    def fingerprint(kind):
        return sources(runs, tmp_path)[kind].image_set(5).fingerprint

    assert fingerprint("a run") == fingerprint("a run") != ""
    folder = Details(images=tmp_path, **HOW)
    before = [resolve("tests.subject.small:network", folder).image_set(5).fingerprint for _ in range(2)]
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(tmp_path / "a" / "0.png")
    after = resolve("tests.subject.small:network", folder).image_set(5).fingerprint
    assert before[0] == before[1] != after
    x = torch.rand(3, 3, 8, 8)
    digests = [
        of_models(network(), images, labels=labels)[0].image_set(5).fingerprint
        for images, labels in ((x, [0, 1, 2]), (x.clone(), [0, 1, 2]), (x, [0, 1, 1]), (x + 1e-6, [0, 1, 2]))
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    assert of_models(network(), list(x))[0].image_set(5).fingerprint == "", "nobody can tell without reading all"


def test_a_function_is_asked_once():
    asked = []

    def examples(count):
        asked.append(count)
        return torch.rand(9, 3, 8, 8)[:count], torch.arange(9)[:count]

    found = Subject("mine", network(), examples=examples).image_set(7)
    assert (len(found), asked) == (7, [7])
    assert found.at([3, 1])[1].tolist() == [3, 1]
    with pytest.raises(Missing, match="mine has no test images"):
        Subject("mine", network()).image_set(7)


class Damaged(ImageSet):
    labels = torch.arange(4)

    def read(self, place):
        if place % 2:
            raise ValueError(f"{place}.png is not a readable image")
        return torch.full((1, 3, 8, 8), float(place)), place


def test_images_that_cannot_be_read():
    images = Damaged()
    with pytest.raises(ValueError, match=r"1\.png is not a readable image"):
        images.at([0, 1, 2])
    images.skip_unreadable = True
    assert images.at([0, 1, 2])[1].tolist() == [0, 2]
    with pytest.raises(ValueError, match="not one of the 2 test images chosen can be read"):
        images.at([1, 3])


class Broken(list):
    """A data set one of whose files is damaged."""

    def __getitem__(self, number):
        if number == 1:
            raise OSError("cut off")
        return super().__getitem__(number)


def test_an_item_that_raises_is_an_image_that_cannot_be_read():
    images = of_models(network(), Broken((torch.rand(3, 8, 8), n) for n in range(3)))[0].image_set(5)
    with pytest.raises(ValueError, match="image 1 of the data set cannot be read: OSError: cut off"):
        images.read(1)
    assert [images.label(place) for place in range(3)] == [0, -1, 2]
    images.skip_unreadable = True
    assert images.at([0, 1, 2])[1].tolist() == [0, 2]


def test_the_labels_of_a_folder_of_images(tmp_path):
    for split in ("train", "val"):
        write_images(tmp_path, [f"{split}/{name}/{n}.png" for name in "ab" for n in range(2)])
    files = {
        split: [(f"{split}/{name}/{n}.png", k) for k, name in enumerate("ab") for n in range(2)]
        for split in ("train", "val")
    }
    folder = Folder("mine", tmp_path, ("a", "b"), files["train"], files["val"])
    view = folder.view(8)
    images, labels = folder.examples(4, view)
    assert folder.test_labels.tolist() == labels.tolist() == [0, 0, 1, 1]
    assert torch.equal(folder.test_image(2, view), images[2:3])


def test_an_image_that_pil_cannot_decode(tmp_path):
    """PIL opens a file by its head, and reads the rest when the pixels are asked for; the label is known before."""
    write_images(tmp_path, ["0.png", "1.png"])
    (tmp_path / "1.png").write_bytes((tmp_path / "1.png").read_bytes()[:-200])

    class Opened(list):
        def __getitem__(self, number):
            return Image.open(io.BytesIO((tmp_path / f"{number}.png").read_bytes())), number + 3

    (subject,) = of_models(network(), Opened(range(2)), size=8, mean=(0.5,) * 3, std=(0.2,) * 3)
    images = subject.examples
    assert images.read(0)[1] == 3
    assert images.label(1) == 4
    with pytest.raises(ValueError, match=r"image 1 of the data set cannot be read: .*truncated"):
        images.read(1)
