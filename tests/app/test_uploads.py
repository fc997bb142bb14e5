"""Bad uploads of every kind get a sentence; good ones of every kind become 8 bits of grey or colour."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from bort.app._uploads import LARGEST_FILE, Refused, decode


def file(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def gradient(mode):
    return Image.fromarray(np.arange(48, dtype=np.uint8).reshape(6, 8) * 5).convert(mode)


def bomb(width, height):
    """A PNG of a few bytes that says it is huge."""
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0),
        b"IDAT": zlib.compress(b"\0" * 1000),
        b"IEND": b"",
    }
    chunks = (struct.pack(">I", len(v)) + k + v + struct.pack(">I", zlib.crc32(k + v)) for k, v in parts.items())
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"hello", "not an image"),
        (b"%PDF-1.7 not a picture", "not an image"),
        (b"PK\x03\x04 archive/data.pkl, as a checkpoint is", "not an image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"\n <?xml version='1.0'?><svg/>", "SVG"),
        (file(gradient("RGB"))[:-40], "damaged or cut off"),
        (file(gradient("RGB"), "JPEG")[:200], "damaged or cut off|not an image"),
        (b"\0" * (LARGEST_FILE + 1), "8.0 MB; at most 8"),
        (bomb(9_000, 9_000), "9000 × 9000 pixels; at most 25 million"),
        (bomb(60_000, 60_000), "far too many pixels; at most 25 million"),
        (bomb(1, 2_000_000), "1 × 2000000 pixels; a side may be at most 50 times"),
        (bomb(0, 10), "damaged|not an image|0 × 10"),
    ],
)
def test_refused(content, message):
    with pytest.raises(Refused, match=message) as refusal:
        decode(content)
    assert str(refusal.value).endswith(".")
    assert "Traceback" not in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "mode"),
    [
        (file(gradient("L")), "L"),
        (file(gradient("1")), "L"),
        (file(gradient("RGB"), "JPEG"), "RGB"),
        (file(gradient("CMYK"), "JPEG"), "RGB"),
        (file(gradient("P"), "GIF"), "RGB"),
        (file(gradient("RGBA")), "RGB"),
        (file(gradient("LA")), "RGB"),
        (file(gradient("RGB"), "WEBP", lossless=True), "RGB"),
        (file(gradient("RGB"), "TIFF"), "RGB"),
        (file(gradient("L"), "GIF", save_all=True, append_images=[gradient("L").rotate(90)]), "RGB"),
    ],
)
def test_taken(content, mode):
    image = decode(content)
    assert image.mode == mode
    assert image.size == (8, 6)


def test_sixteen_bits_are_scaled():
    ramp = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    found = np.array(decode(file(Image.fromarray(ramp))))
    assert np.abs(found - ramp / 257).max() <= 1


def test_transparent_places_are_white():
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert np.array(decode(file(image))).min() == 255
