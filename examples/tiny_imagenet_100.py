"""The 100 classes of Tiny ImageNet on which our results are: every second one in the order of their WordNet IDs.

python examples/tiny_imagenet_100.py tiny-imagenet-200.zip [FOLDER]

The archive is the published one (Stanford CS231n). FOLDER is $BORT_DATA/tiny-imagenet-100 or ~/.cache/bort/tiny-imagenet-100
by default, where the recipes look for it; it gets train/<class>/ with 500 and val/<class>/ with 50 images a class.
"""

import argparse
import shutil
import zipfile
from pathlib import Path, PurePosixPath

from bort import data

FINGERPRINT = "8a732e6d2bab0ef7be18778b1e809dac001776de699c9495dcb7609475fbed00"
"""Of all training images. Results on held-out ones have another, made of this one and of which are held out."""

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
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=data.default_root() / "tiny-imagenet-100")
    options = parser.parse_args()
    if options.folder.exists():
        parser.error(f"{options.folder} exists already: remove it, or name another folder")
    unfinished = options.folder.with_name(options.folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        with zipfile.ZipFile(options.archive) as archive:
            for source, place in places(archive).items():
                (unfinished / place).parent.mkdir(parents=True, exist_ok=True)
                (unfinished / place).write_bytes(archive.read(source))
    except (OSError, zipfile.BadZipFile) as error:
        parser.error(f"{options.archive}: {error}")
    except KeyError as error:
        parser.error(f"{options.archive} is not the published tiny-imagenet-200.zip: {error.args[0]}")
    unfinished.rename(options.folder)
    same = data.load(f"folder:{options.folder.resolve()}").fingerprint == FINGERPRINT
    print(f"{options.folder}: {'the images of our results' if same else 'not the images of our results'}")


if __name__ == "__main__":
    main()
