"""The 100 classes of Tiny ImageNet on which our results are: every second one in the order of their WordNet IDs.

python examples/tiny_imagenet_100.py tiny-imagenet-200.zip [FOLDER]

The archive is the published one (Stanford CS231n). FOLDER is $BORT_DATA/tiny-imagenet-100 or ~/.cache/bort/tiny-imagenet-100
by default, where the recipes look for it; it gets train/<class>/ with 500 and val/<class>/ with 50 images a class.
"""

import argparse
import os
import shutil
import zipfile
from pathlib import Path, PurePosixPath

from bort import data

FINGERPRINT = "8a732e6d2bab0ef7be18778b1e809dac001776de699c9495dcb7609475fbed00"
"""What the files in results/ have."""


def places(archive: zipfile.ZipFile) -> dict[str, str]:
    """Where each image of the chosen classes goes, by its name in the archive."""
    names = [name for name in archive.namelist() if name.endswith(".JPEG")]
    top = PurePosixPath(names[0]).parts[0]
    chosen = set(archive.read(f"{top}/wnids.txt").decode().split())
    chosen = set(sorted(chosen)[::2])
    found = {}
    for name in names:
        part, folder, *_ = PurePosixPath(name).relative_to(top).parts
        if part == "train" and folder in chosen:
            found[name] = f"train/{folder}/{PurePosixPath(name).name}"
    for line in archive.read(f"{top}/val/val_annotations.txt").decode().splitlines():
        image, label, *_ = line.split("\t")
        if label in chosen:
            found[f"{top}/val/images/{image}"] = f"val/{label}/{image}"
    return found


def main() -> None:
    home = Path(os.environ.get("BORT_DATA") or Path.home() / ".cache" / "bort")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=home / "tiny-imagenet-100")
    options = parser.parse_args()
    if options.folder.exists():
        parser.error(f"{options.folder} exists already")
    unfinished = options.folder.with_name(options.folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    with zipfile.ZipFile(options.archive) as archive:
        for source, place in places(archive).items():
            (unfinished / place).parent.mkdir(parents=True, exist_ok=True)
            (unfinished / place).write_bytes(archive.read(source))
    unfinished.rename(options.folder)
    same = data.load(f"folder:{options.folder.resolve()}").fingerprint == FINGERPRINT
    print(f"{options.folder}: {'the images of our results' if same else 'not the images of our results'}")


if __name__ == "__main__":
    main()
