"""MNIST and CIFAR-10 in the layouts their makers publish, in small: written here, with their hashes registered."""

import gzip
import hashlib
import struct
import tarfile

import pytest
import torch

from bort import data
from bort.data import _cifar10, _mnist
from bort.data._published import Published, sha256


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.numpy().tobytes()


@pytest.fixture
def mnist_folder(tmp_path):
    """Four files of 20 and 10 digits, their contents and their hashes."""
    torch.manual_seed(0)
    folder = tmp_path / "mnist"
    folder.mkdir()
    arrays, files = {}, {}
    for part, count in (("train", 20), ("t10k", 10)):
        arrays[f"{part}-images-idx3"] = torch.randint(0, 256, (count, 28, 28), dtype=torch.uint8)
        arrays[f"{part}-labels-idx1"] = torch.arange(count, dtype=torch.uint8) % 10
    for name in _mnist.FILES:
        path = folder / f"{name}-ubyte.gz"
        path.write_bytes(gzip.compress(idx(arrays[name])))
        files[name] = Published(path.name, "http://127.0.0.1:9/nothing", sha256(path))
    return folder, arrays, files


def test_mnist(mnist_folder):
    folder, arrays, files = mnist_folder
    digits = _mnist.mnist(folder.parent, files)
    assert torch.equal(digits.train_images[:, 0], arrays["train-images-idx3"])
    assert torch.equal(digits.test_labels, arrays["t10k-labels-idx1"].long())
    assert (digits.name, digits.classes, len(digits.fingerprint)) == ("mnist", 10, 64)


def test_the_environment_says_where(mnist_folder, monkeypatch):
    """The small files are read there and refused, since they are not MNIST's."""
    folder = mnist_folder[0]
    monkeypatch.setenv("BORT_DATA", str(folder.parent))
    with pytest.raises(ValueError, match="is not the published file") as caught:
        data.load("mnist")
    assert str(folder) in str(caught.value)


def test_a_changed_byte_is_refused_by_name(mnist_folder):
    path = mnist_folder[0] / "t10k-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte\.gz is not the published file: its SHA-256 is"):
        _mnist.mnist(mnist_folder[0].parent, mnist_folder[2])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("images.gz", gzip.compress(b"hello"), "not an idx file of bytes: it begins with 68 65 6c 6c"),
        ("images.gz", b"not gzip", "damaged or truncated"),
        ("images.gz", gzip.compress(idx(torch.zeros(3, 4, 4, dtype=torch.uint8)))[:-9], "damaged or truncated"),
        (
            "images.gz",
            gzip.compress(idx(torch.zeros(3, 4, 4, dtype=torch.uint8))[:-5]),
            "43 bytes for a shape of 3×4×4",
        ),
        ("images.gz", gzip.compress(idx(torch.zeros(3, dtype=torch.uint8))), "has labels in it, not images"),
        ("labels.gz", gzip.compress(idx(torch.tensor([3, 11], dtype=torch.uint8))), "label 11 is not a digit"),
    ],
    ids=["no idx", "no gzip", "gzip cut short", "idx cut short", "labels for images", "no digit"],
)
def test_bad_idx_files_are_named(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        _mnist.read_idx(path)
    assert str(path) in str(caught.value)


@pytest.fixture
def cifar_folder(tmp_path):
    torch.manual_seed(0)
    folder = tmp_path / _cifar10.FOLDER
    folder.mkdir()
    records, hashes = {}, {}
    for name in _cifar10.FILES:
        labels = torch.arange(10, dtype=torch.uint8)[:, None]
        records[name] = torch.cat([labels, torch.randint(0, 256, (10, 3072), dtype=torch.uint8)], dim=1)
        (folder / name).write_bytes(records[name].numpy().tobytes())
        hashes[name] = sha256(folder / name)
    return folder, records, hashes


def test_cifar10(cifar_folder):
    folder, records, hashes = cifar_folder
    images = _cifar10.cifar10(folder.parent, files=hashes)
    assert images.train_images.shape == (50, 3, 32, 32)
    assert torch.equal(images.train_images[10, 1].flatten(), records["data_batch_2.bin"][0, 1 + 1024 : 1 + 2048])
    assert torch.equal(images.test_labels, torch.arange(10))


def test_cifar10_out_of_its_archive(cifar_folder):
    """Also where an earlier attempt has left some of the batches."""
    folder, _, hashes = cifar_folder
    archive = folder.parent / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=_cifar10.FOLDER)
    published = Published(archive.name, "http://127.0.0.1:9/nothing", sha256(archive))
    (folder / "data_batch_3.bin").unlink()
    assert len(_cifar10.cifar10(folder.parent, published, hashes).train_images) == 50
    assert {p.name for p in folder.parent.iterdir()} == {archive.name, folder.name}, "nothing is left behind"


def test_an_archive_without_the_batches_leaves_nothing(tmp_path):
    archive = tmp_path / "a.tar.gz"
    (tmp_path / "x").write_text("x")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "x", arcname=f"{_cifar10.FOLDER}/x")
    with pytest.raises(ValueError, match=r"has no cifar-10-batches-bin/data_batch_1\.bin"):
        _cifar10.unpack(archive, tmp_path / _cifar10.FOLDER)
    assert not (tmp_path / _cifar10.FOLDER).exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "truncated: 0 bytes"), (bytes(3072), "truncated: 3072 bytes"), (bytes([12]) + bytes(3072), "label 12")],
    ids=["empty", "cut short", "no class"],
)
def test_bad_batches_are_named(tmp_path, content, words):
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        _cifar10.read_batch(path)
    assert str(path) in str(caught.value)


def test_the_registry_is_whole():
    digests = [file.sha256 for file in _mnist.FILES.values()] + [*_cifar10.FILES.values(), _cifar10.ARCHIVE.sha256]
    assert len(set(digests)) == 11
    assert all(len(digest) == len(hashlib.sha256().hexdigest()) for digest in digests)
