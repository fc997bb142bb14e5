"""Bad uploads of every kind get a sentence; good ones of every kind become 8 bits of grey or colour."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from bort.app._uploads import LARGEST_FILE, MOST_MEMORY, Refused, decode, memory, side_of
from bort.data import View, to_eight_bits
from tests.app.files import png


def file(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def gradient(mode):
    return Image.fromarray(np.arange(48, dtype=np.uint8).reshape(6, 8) * 5).convert(mode)


def bomb(width, height):
    """A PNG of a few bytes that says it is huge."""
    return png(width, height, 8, 0, zlib.compress(b"\0" * 1000))


def tiled(side):
    """A TIFF of 16 × 16 pixels whose only tile has this side; a tile is decoded whole."""
    tile = zlib.compress(b"\0" * 1000)
    numbers = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side, 324: 8, 325: len(tile)}
    tags = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in numbers.items())
    return b"II*\0" + struct.pack("<I", 8 + len(tile)) + tile + struct.pack("<H", len(numbers)) + tags + b"\0" * 4


def progressive(scans):
    """A JPEG whose last scan comes so many times more."""
    content = file(gradient("L"), "JPEG", progressive=True)
    return content[:-2] + content[content.rindex(b"\xff\xda") : -2] * scans + content[-2:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (progressive(1000), "The JPEG has more than 100 scans: save it again"),
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
        (
            tiled(32_768),
            "16 × 16 pixels and would take 8590 MB to decode as TIFF; at most 320 are taken: send it smaller",
        ),
        (file(Image.new("L", (4700, 4700)), "WEBP", lossless=True, method=0), "would take 353 MB to decode as WEBP"),
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


@pytest.mark.parametrize("kind", [{}, {"progressive": True}], ids=str)
def test_what_is_behind_the_picture_or_beside_it_are_no_scans(kind):
    """Phones put a film there; segments hold thumbnails."""
    scans = b"\xff\xda\0\2" * 200
    content = file(waves("RGB", (64, 48)), "JPEG", exif=b"Exif\0\0" + scans, comment=scans, **kind) + scans
    assert np.array_equal(np.array(decode(content)), np.array(decode(file(waves("RGB", (64, 48)), "JPEG", **kind))))


def test_sixteen_bits_are_scaled():
    ramp = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    found = np.array(decode(file(Image.fromarray(ramp))))
    assert np.abs(found - ramp / 257).max() <= 1


def test_transparent_places_are_white():
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert np.array(decode(file(image))).min() == 255


def waves(mode="RGB", size=(1203, 905)):
    """Smooth, and larger than a small network needs; no side is a multiple of anything."""
    x, y = np.meshgrid(*(np.linspace(0, 7, side) for side in size))
    planes = [127 + 120 * np.sin(x + shift) * np.cos(y) for shift in range(3)]
    return Image.fromarray(np.stack(planes, axis=-1).astype(np.uint8)).convert(mode)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "I;16", "I"])
def test_a_large_image_is_reduced_as_a_whole_one_would_be(mode, monkeypatch):
    """By bands, which are not seen in the result."""
    monkeypatch.setattr("bort.app._uploads._BAND", 20_000)
    image = Image.fromarray(np.array(waves("L")).astype(np.uint16) * 200) if mode == "I;16" else waves(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(waves("L").rotate(180))
    reduced = decode(file(image, "TIFF" if mode == "I" else "PNG"), side=32)
    assert reduced.size == (134, 101), "by 9, the shorter side at least three times 32"
    assert np.array_equal(np.array(reduced), np.array(to_eight_bits(image).reduce(9)))


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("JPEG", {"quality": 95}), ("JPEG", {"progressive": True})])
@pytest.mark.parametrize("view", [View(28, 1, (0.5,), (0.5,)), View(48, 3, (0.5,) * 3, (0.5,) * 3, crop_part=None)])
def test_a_network_sees_nearly_the_same_of_a_reduced_image(kind, options, view):
    content = file(waves(), kind, **options)
    reduced = decode(content, side_of(view))
    assert reduced.width < 700
    difference = (view.crop(reduced).float() - view.crop(decode(content)).float()).abs()
    assert difference.max() <= 4
    assert difference.mean() < 1.5, "of 255 grey levels"


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("side", [None, 32])
def test_upright(orientation, side):
    image = waves(size=(800, 600))
    exif = image.getexif()
    exif[0x0112] = orientation
    content = file(image, "JPEG", exif=exif, quality=95)
    with Image.open(io.BytesIO(content)) as opened:
        upright = ImageOps.exif_transpose(opened)
    found = decode(content, side)
    assert (found.width > found.height) == (orientation < 5)
    small = (np.array(each.resize((20, 20), Image.Resampling.BOX)).astype(int) for each in (found, upright))
    assert np.abs(np.subtract(*small)).max() <= 4


def test_what_decoding_takes_is_known_from_the_header():
    """25 million pixels: the formats of cameras and screenshots are taken, WebP, which takes most, up to 20 million."""
    sixteen = png(5000, 5000, 16, 6, b"")
    with Image.open(io.BytesIO(sixteen)) as opened:
        assert memory(opened) == 25_000_000 * 4 < MOST_MEMORY
    with Image.open(io.BytesIO(file(Image.new("CMYK", (500, 500)), "JPEG", progressive=True))) as opened:
        assert memory(opened) == 250_000 * (4 + 8)
