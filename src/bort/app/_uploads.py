"""Uploaded images: checked before they are decoded, decoded in bounded memory, and refused with a sentence."""

from __future__ import annotations

import io
import math
import re
import warnings
from typing import TYPE_CHECKING, Any, Final

from bort.app._ink import Paper, on_paper, paper_under
from bort.data import View

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

LARGEST_FILE: Final = 8 * 2**20
MOST_PIXELS: Final = 25_000_000
MOST_MEMORY: Final = 320_000_000
"""Bytes that decoding an image may take."""
MOST_SCANS: Final = 100
"""Of a JPEG: each takes a pass over all its pixels, and a few bytes can ask for one. Programs write about ten."""
MOST_OBLONG: Final = 50
"""Longer side by shorter: the shorter one is resized to the network's size, and the longer one in proportion."""
FORMATS: Final = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
_GAP: Final = 3
"""How much larger than the networks' input a reduced image stays, for the fine resizing that follows: Pillow's
``reducing_gap``, of which it says that 3 is hardly to be told from no reduction."""
_BAND: Final = 2**20  # pixels that are converted at a time
_ORIENTATION: Final = 0x0112  # EXIF's tag
_MARKER: Final = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])")
"""In a JPEG the beginning of a segment, or the image's end; others have no data of their own."""


class Refused(ValueError):
    """The upload is not an image that is accepted; the message is for the person who sent it."""


def decode(content: bytes, side: int | None = None, paper: Paper = "bright") -> Image:
    """The first picture of a file, in 8 bits of grey or colour, upright.

    Args:
        content: of the file.
        side: the largest that a network needs, see :func:`side_of`. A much larger image is reduced by a whole number, JPEG
            by up to 8 while it is decoded; its shorter side stays at least ``_GAP`` times as long.
        paper: what is seen where the image is transparent, unless its ink would be lost on it.
    """
    from PIL import Image as images
    from PIL import UnidentifiedImageError

    if not content:
        raise Refused("The file is empty.")
    if len(content) > LARGEST_FILE:
        raise Refused(f"The file has {len(content) / 2**20:.1f} MB; at most {LARGEST_FILE // 2**20} are taken.")
    if content[:512].lstrip().lower().startswith((b"<svg", b"<?xml", b"<!doctype")):
        raise Refused("This is an SVG or HTML file; send a picture of pixels (PNG, JPEG, WebP, BMP, GIF or TIFF).")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large images before our own limit below
            with images.open(io.BytesIO(content), formats=FORMATS) as opened:
                _check(opened, content)  # by the header: nothing has been decoded yet
                return _read(opened, side, paper)
    except Refused:
        raise
    except images.DecompressionBombError:
        raise Refused(f"The image has far too many pixels; at most {MOST_PIXELS // 10**6} million are taken.") from None
    except UnidentifiedImageError:
        raise Refused("This is not an image that can be read (PNG, JPEG, WebP, BMP, GIF or TIFF).") from None
    except Exception as error:  # damaged files make decoders raise anything
        raise Refused(f"The image is damaged or cut off: {error}.") from None


def side_of(view: View) -> int:
    """The longer side to which the view resizes a square image, before it crops."""
    return math.ceil(max(view.height, view.width) / (view.crop_part or 1))


def _check(opened: ImageFile, content: bytes) -> None:
    width, height = opened.size
    size = f"The image has {width} × {height} pixels"
    if width < 1 or height < 1:
        raise Refused(f"{size}.")
    if width * height > MOST_PIXELS:
        raise Refused(f"{size}; at most {MOST_PIXELS // 10**6} million are taken.")
    if max(width, height) > MOST_OBLONG * min(width, height):
        raise Refused(f"{size}; a side may be at most {MOST_OBLONG} times the other.")
    if opened.format in ("JPEG", "MPO") and _scans(content) > MOST_SCANS:
        raise Refused(f"The JPEG has more than {MOST_SCANS} scans: save it again.")
    needed = memory(opened)
    if needed > MOST_MEMORY:
        raise Refused(
            f"{size} and would take {needed / 1e6:.0f} MB to decode as {opened.format}; at most {MOST_MEMORY / 1e6:.0f} "
            "are taken: send it smaller, or as PNG or JPEG."
        )


def _scans(content: bytes) -> int:
    """The scans of a JPEG, as far as they matter. Markers are followed as decoders do: past what segments hold, to the end of
    the image, behind which phones put a film."""
    scans, place = 0, 2
    while scans <= MOST_SCANS and (marker := _MARKER.search(content, place)) and marker[1] != b"\xd9":
        scans += marker[1] == b"\xda"
        place = marker.end() + max(2, int.from_bytes(content[marker.end() : marker.end() + 2], "big"))
    return scans


def memory(opened: ImageFile) -> int:
    """Bytes that decoding the image takes at most: its pixels as Pillow stores them, and what the format's decoder holds
    besides."""
    width, height = opened.size
    pixels = width * height
    stored = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}.get(opened.mode, 4)
    held = 0
    if opened.format == "WEBP":
        held = 12  # two canvases of an animation, and the frame as bytes
    elif opened.format == "GIF":
        held = 8  # frames are put on an RGBA canvas
    elif opened.format in ("JPEG", "MPO") and "progressive" in opened.info:
        held = 2 * len(opened.getbands())  # all coefficients until the last scan has come
    elif opened.format == "TIFF":
        tags: Any = opened.tag_v2  # type: ignore[attr-defined]
        return pixels * stored + 8 * max(pixels, _tile(tags, width, height))  # of up to 16 bits a channel
    return pixels * (stored + held)


def _tile(tags: Any, width: int, height: int) -> int:
    """Pixels of a tile of a TIFF, which is decoded whole and may be larger than the image."""
    tile_width, tile_height = tags.get(322, width), tags.get(323, min(tags.get(278, height), height))
    return int(tile_width) * int(tile_height)


def _read(opened: ImageFile, side: int | None, paper: Paper) -> Image:
    width, height = opened.size
    factor = 1 if side is None else max(1, min(width, height) // (_GAP * side))
    opened.draft(None, (width // factor, height // factor))
    opened.seek(0)  # the first picture of an animation
    opened.load()
    orientation = opened.getexif().get(_ORIENTATION, 1)
    factor = max(1, min(opened.size) * factor // min(width, height))  # what draft has left to do
    return _upright(_reduced(opened, factor, paper_under(opened, paper)), orientation)


def _reduced(image: Image, factor: int, paper: Paper) -> Image:
    """In 8 bits, by bands of rows: a conversion holds several copies of what it converts."""
    from PIL import Image as images

    rows = factor * max(1, _BAND // image.width // factor)
    high: Any = image.getextrema()[1] if image.mode[0] in "IF" else None
    result: Image | None = None
    for top in range(0, image.height, rows):
        part = image.crop((0, top, image.width, min(top + rows, image.height)))
        band = on_paper(part, paper, high).reduce(factor)
        if result is None:
            result = images.new(band.mode, (band.width, -(-image.height // factor)))
        result.paste(band, (0, top // factor))
    assert result is not None
    return result


def _upright(image: Image, orientation: int) -> Image:
    from PIL import ImageOps

    image.getexif()[_ORIENTATION] = orientation
    ImageOps.exif_transpose(image, in_place=True)  # otherwise it copies upright ones
    return image
