"""The 100 classes are taken out of the published archive."""

import errno
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from bort import data

PROGRAM = Path(__file__).parents[2] / "examples" / "tiny_imagenet_100.py"
CLASSES = ("n03", "n01", "n04", "n02")


@pytest.fixture
def archive(tmp_path):
    """Four classes with two images each to train on, and one each to test on."""
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w", zipfile.ZIP_DEFLATED) as file:
        top = "tiny-imagenet-200"
        file.writestr(f"{top}/wnids.txt", "".join(f"{name}\n" for name in CLASSES))
        for name in CLASSES:
            for number in range(2):
                file.writestr(f"{top}/train/{name}/images/{name}_{number}.JPEG", image())
            file.writestr(f"{top}/train/{name}/{name}_boxes.txt", f"{name}_0.JPEG\t0\t0\t1\t1\n")
        labels = [f"val_{number}.JPEG\t{name}\t0\t0\t1\t1\n" for number, name in enumerate(CLASSES)]
        file.writestr(f"{top}/val/val_annotations.txt", "".join(labels))
        for number in range(4):
            file.writestr(f"{top}/val/images/val_{number}.JPEG", image())
        file.writestr(f"{top}/test/images/test_0.JPEG", image())
    return Path(file.filename)


def image():
    file = io.BytesIO()
    Image.new("RGB", (4, 4), "teal").save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def program(monkeypatch):
    monkeypatch.syspath_prepend(PROGRAM.parent)
    import tiny_imagenet_100

    return tiny_imagenet_100


@pytest.fixture
def build(program, capsys):
    """A function: the example with these arguments; returns its exit status and what it says."""

    def run(*arguments):
        status = 0
        try:
            program.main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
        said = capsys.readouterr()
        return status, said.out + said.err

    return run


def test_every_second_class_by_its_id(build, archive, tmp_path):
    folder = tmp_path / "built"
    status, said = build(archive, folder)
    assert status == 1
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.JPEG")} == {
        *(f"train/{name}/{name}_{number}.JPEG" for name in ("n01", "n03") for number in range(2)),
        "val/n01/val_1.JPEG",
        "val/n03/val_0.JPEG",
    }
    assert said == (
        f"{folder}: not the files of our results: 4 images to train on and 2 to test on in 2 classes, where those have "
        "50,000 and 5,000 in 100\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["built", archive.name], "nothing half-written"
    status, said = build(archive, folder)
    assert status == 2
    assert f"{folder} exists already" in said


def test_the_files_of_our_results_by_number_name_and_size(program, build, archive, tmp_path, monkeypatch):
    build(archive, tmp_path / "first")
    first = data.load(f"folder:{tmp_path / 'first'}")
    monkeypatch.setattr(program, "OURS", (4, 2, 2))
    status, said = build(archive, tmp_path / "second")
    assert status == 1
    assert said.endswith("not the files of our results: as many, but some have other names or sizes\n")
    monkeypatch.setattr(program, "FINGERPRINT", first.fingerprint)
    status, said = build(archive, tmp_path / "third")
    assert status == 0
    assert said == f"{tmp_path / 'third'}: as many files, with the names and sizes of those of our results\n"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.zip", None, "missing.zip: [Errno 2]"),
        ("a.zip", b"no archive", "a.zip: File is not a zip file"),
        ("other.zip", {"photograph.JPEG": b""}, "other.zip is not the published tiny-imagenet-200.zip"),
        ("damaged.zip", b"\0\0\0\0", "damaged.zip: "),
        (
            "no-train.zip",
            "/train/",
            "no-train.zip is not the published tiny-imagenet-200.zip: it has no images in train/",
        ),
        ("no-val.zip", "/val/images", "no-val.zip is not the published tiny-imagenet-200.zip: There is no item named"),
        (
            "empty.zip",
            {"tiny-imagenet-200/wnids.txt": b"", "tiny-imagenet-200/val/val_annotations.txt": b""},
            "no classes",
        ),
        ("no-classes.zip", "wnids.txt", "no-classes.zip is not the published tiny-imagenet-200.zip: "),
        ("one-class.zip", "/train/n01", "it has no images in train/ of n01"),
    ],
)
def test_another_archive_is_refused(build, archive, tmp_path, name, content, says):
    file = tmp_path / name
    if isinstance(content, dict):
        with zipfile.ZipFile(file, "w") as made:
            for member, written in content.items():
                made.writestr(member, written)
    elif isinstance(content, str):  # what is missing
        with zipfile.ZipFile(archive) as whole, zipfile.ZipFile(file, "w") as made:
            for member in whole.namelist():
                if content not in member:
                    made.writestr(member, whole.read(member))
    elif name == "damaged.zip":
        bytes_of = bytearray(archive.read_bytes())
        place = bytes_of.index(b"n01_0.JPEG") + len(b"n01_0.JPEG")
        bytes_of[place : place + 8] = b"\xff" * 8
        file.write_bytes(bytes_of)
    elif content is not None:
        file.write_bytes(content)
    status, said = build(file, tmp_path / "built")
    assert status == 2
    assert says in said
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("built")]


def test_a_full_disk_is_not_the_archives_fault(build, archive, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    status, said = build(archive, tmp_path / "built")
    assert status == 2
    assert "built.unfinished cannot be written: No space left on device" in " ".join(said.split())
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]


@pytest.mark.slow
def test_as_typed(archive, tmp_path):
    program = subprocess.run([sys.executable, PROGRAM, archive, tmp_path / "built"], capture_output=True, text=True)
    assert program.returncode == 1
    assert "not the files of our results" in program.stdout
