"""The 100 classes are taken out of the published archive."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from PIL import Image

PROGRAM = Path(__file__).parents[2] / "examples" / "tiny_imagenet_100.py"
CLASSES = ("n03", "n01", "n04", "n02")


@pytest.fixture
def archive(tmp_path):
    """Four classes with two images each to train on, and one each to test on."""
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w") as file:
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


def build(*arguments):
    return subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True)


def test_every_second_class_by_its_id(archive, tmp_path):
    folder = tmp_path / "built"
    program = build(archive, folder)
    assert program.returncode == 0, program.stderr
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.JPEG")} == {
        *(f"train/{name}/{name}_{number}.JPEG" for name in ("n01", "n03") for number in range(2)),
        "val/n01/val_1.JPEG",
        "val/n03/val_0.JPEG",
    }
    assert "not the images of our results" in program.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["built", archive.name], "nothing half-written"
    again = build(archive, folder)
    assert again.returncode == 2
    assert f"{folder} exists already" in again.stderr


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.zip", None, "missing.zip: [Errno 2]"),
        ("a.zip", b"no archive", "a.zip: File is not a zip file"),
        ("other.zip", {"photograph.JPEG": b""}, "other.zip is not the published tiny-imagenet-200.zip"),
    ],
)
def test_another_archive_is_refused(tmp_path, name, content, says):
    if isinstance(content, dict):
        with zipfile.ZipFile(tmp_path / name, "w") as file:
            for member, data in content.items():
                file.writestr(member, data)
    elif content is not None:
        (tmp_path / name).write_bytes(content)
    program = build(tmp_path / name, tmp_path / "built")
    assert program.returncode == 2
    assert says in program.stderr
    assert not (tmp_path / "built").exists()
