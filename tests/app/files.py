"""Image files for tests of uploads."""

import struct
import zlib


def png(width, height, bits, kind, data):
    """A PNG with that header, whatever the compressed data."""
    parts = {b"IHDR": struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0), b"IDAT": data, b"IEND": b""}
    chunks = (struct.pack(">I", len(v)) + k + v + struct.pack(">I", zlib.crc32(k + v)) for k, v in parts.items())
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def large_png(width, height):
    """A small file of a large image: RGBA of 16 bits a channel, every row the same."""
    packer, row = zlib.compressobj(), b"\0" + bytes(range(8)) * width
    return png(width, height, 16, 6, b"".join(packer.compress(row) for _ in range(height)) + packer.flush())
