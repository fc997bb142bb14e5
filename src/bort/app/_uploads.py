"""Uploaded images: checked before they are decoded, and refused with a sentence."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Final

from bort.app._ink import Paper, on_paper, paper_under

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST_FILE: Final = 8 * 2**20
MOST_PIXELS: Final = 25_000_000
MOST_OBLONG: Final = 50
"""Longer side by shorter: the shorter one is resized to the network's size, and the longer one in proportion."""
FORMATS: Final = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")


class Refused(ValueError):
    """The upload is not an image that is accepted; the message is for the person who sent it."""


def decode(content: bytes, paper: Paper = "bright") -> Image:
    """The first picture of a file, in 8 bits of grey or colour; ``paper`` is seen where it is transparent."""
    from PIL import Image as images
    from PIL import ImageOps, UnidentifiedImageError

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
                width, height = opened.size  # read from the header: nothing has been decoded yet
                if width < 1 or height < 1:
                    raise Refused(f"The image has {width} × {height} pixels.")
                if width * height > MOST_PIXELS:
                    raise Refused(
                        f"The image has {width} × {height} pixels; at most {MOST_PIXELS // 10**6} million are taken."
                    )
                if max(width, height) > MOST_OBLONG * min(width, height):
                    raise Refused(
                        f"The image has {width} × {height} pixels; a side may be at most {MOST_OBLONG} times the other."
                    )
                opened.seek(0)  # the first picture of an animation
                opened.load()
                return on_paper(ImageOps.exif_transpose(opened), paper_under(opened, paper))
    except Refused:
        raise
    except images.DecompressionBombError:
        raise Refused(f"The image has far too many pixels; at most {MOST_PIXELS // 10**6} million are taken.") from None
    except UnidentifiedImageError:
        raise Refused("This is not an image that can be read (PNG, JPEG, WebP, BMP, GIF or TIFF).") from None
    except Exception as error:  # damaged files make decoders raise anything
        raise Refused(f"The image is damaged or cut off: {error}.") from None
