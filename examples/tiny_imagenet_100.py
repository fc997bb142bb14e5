"""The 100 classes of Tiny ImageNet on which our results are: every second one in the order of their WordNet IDs.

python examples/tiny_imagenet_100.py tiny-imagenet-200.zip [FOLDER]

The archive is the published one (Stanford CS231n). FOLDER is $BORT_DATA/tiny-imagenet-100 or ~/.cache/bort/tiny-imagenet-100
by default, where the recipes look for it; it gets train/<class>/ with 500 and val/<class>/ with 50 images a class. In the end
the names and sizes of all files, not what is in them, are compared with those of our results: status 1 if they differ.
"""

import argparse
import shutil
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from bort import data

FINGERPRINT = "8a732e6d2bab0ef7be18778b1e809dac001776de699c9495dcb7609475fbed00"
"""SHA-256 over the path and the size of every file, to train and to test on. Results on held-out images have another, made of
this one and of which are held out."""
OURS = (50_000, 5_000, 100)
"""Images to train on, images to test on, classes."""

TOP = "tiny-imagenet-200"
"""The folder in the archive."""


def places(archive: zipfile.ZipFile) -> dict[str, str]:
    """Where each image of the chosen classes goes, by its name in the archive."""
    classes = archive.read(f"{TOP}/wnids.txt").decode().split()
    chosen = set(sorted(classes)[::2])
    found = {}
    for name in archive.namelist():
        match PurePosixPath(name).parts:
            case (top, "train", folder, "images", image) if top == TOP and folder in chosen:
                found[name] = f"train/{folder}/{image}"
    for line in archive.read(f"{TOP}/val/val_annotations.txt").decode().splitlines():
        image, label, *_ = line.split("\t")
        if label in chosen:
            found[f"{TOP}/val/images/{image}"] = f"val/{label}/{image}"
    if not chosen:
        raise ValueError("it names no classes")
    for split in ("train", "val"):
        if missing := chosen - {place.split("/")[1] for place in found.values() if place.startswith(f"{split}/")}:
            raise ValueError(f"it has no images in {split}/ of {', '.join(sorted(missing)[:3])}")
    return found


def contents(file: Path) -> Iterator[tuple[str, bytes]]:
    """Where each image goes, and its bytes. A ValueError says what is wrong with the archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            for source, place in places(archive).items():
                yield place, archive.read(source)
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{file}: {error}") from error
    except (KeyError, ValueError) as error:
        reason = error.args[0] if isinstance(error, KeyError) else error  # str() of a KeyError has quotes
        raise ValueError(f"{file} is not the published tiny-imagenet-200.zip: {reason}") from error


def difference(folder: data.Folder) -> str:
    """From the files of our results; empty if there is none."""
    if folder.fingerprint == FINGERPRINT:
        return ""
    found = len(folder.train_files), len(folder.test_files), folder.classes
    if found == OURS:
        return "as many, but some have other names or sizes"
    counts = "{:,} images to train on and {:,} to test on in {} classes, where those have {:,} and {:,} in {}"
    return counts.format(*found, *OURS)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=data.default_root() / "tiny-imagenet-100")
    options = parser.parse_args(arguments)
    if options.folder.exists():
        parser.error(f"{options.folder} exists already: remove it, or name another folder")
    unfinished = options.folder.with_name(options.folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        for place, image in contents(options.archive):
            (unfinished / place).parent.mkdir(parents=True, exist_ok=True)
            (unfinished / place).write_bytes(image)
        differs = difference(data.load(f"folder:{unfinished.resolve()}"))
        unfinished.rename(options.folder)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{unfinished} cannot be written: {error.strerror}")
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    if differs:
        print(f"{options.folder}: not the files of our results: {differs}")
        sys.exit(1)
    print(f"{options.folder}: as many files, with the names and sizes of those of our results")


if __name__ == "__main__":
    main()
