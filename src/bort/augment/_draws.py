"""Random numbers from keys: what is drawn for image i in epoch e depends on (seed, e, i) alone.

The generator is splitmix64 (Steele, Lea and Flood, 2014), which has no state to carry: its n-th number is a mixing of
seed + n · GOLDEN. An image's key is number i of the generator that (seed, e) seeds, and its draws are numbers of the
generator that the key seeds. So a batch needs neither its order nor its company, on a CPU or a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import torch
from torch import Tensor

from bort.augment._constant import constant


def _signed(number: int) -> int:
    """64 bits as torch's int64 holds them."""
    return number - 2**64 if number >= 2**63 else number


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)
_VIEW = _signed(0xD1342543DE82EF95)  # any odd number far from the multiples of _GOLDEN

_STREAM_LENGTH = 2**16


class Stream(IntEnum):
    """What numbers are drawn for. Numbers of one stream do not change when another becomes longer."""

    CROP = 1
    RANDAUGMENT = 2
    JITTER = 3
    ERASE = 4


def image_keys(base: Tensor | int, index: Tensor) -> Tensor:
    """Keys (B,) of the images ``index`` (B,), both int64.

    Args:
        base: a number of 63 bits for (seed, epoch), such as a hash of both. It may be a 0-dim tensor on the device, which a
            captured graph reads anew at each replay.

    Example:
        >>> first, again = (augment.image_keys(7, torch.tensor([3])) for _ in range(2))
        >>> torch.equal(first, again), torch.equal(first, augment.image_keys(8, torch.tensor([3])))
        (True, False)
    """
    return _mixed(index * _GOLDEN + base)


def view_keys(keys: Tensor, first: int, count: int) -> Tensor:
    """(count · B,) keys of views first, first + 1 … of the images: all images of one view, then all of the next."""
    offsets = constant(tuple(_wrapped(_VIEW * view) for view in range(first, first + count)), torch.int64, keys.device)
    return (offsets[:, None] + keys).flatten()


def uniform(keys: Tensor, stream: Stream, count: int) -> Tensor:
    """(B, count) numbers in [0, 1): multiples of 2⁻²⁴, in float64. What follows from them for an image are a few numbers,
    computed in float64 too: then CPU and GPU, whose functions differ in the last bit, practically never round to different
    pixels, and arguments are timm's to the bit."""
    return uniforms(keys, {stream: count})[stream]


def uniforms(keys: Tensor, counts: Mapping[Stream, int]) -> dict[Stream, Tensor]:
    """(B, count) numbers of several streams. One call for all of them launches a dozen small kernels; so would each."""
    numbers = tuple(
        _wrapped((stream * _STREAM_LENGTH + column) * _GOLDEN)
        for stream, count in counts.items()
        for column in range(count)
    )
    bits = _scrambled(keys[:, None] + constant(numbers, torch.int64, keys.device))
    table = _shifted(bits, 40).double() * 2.0**-24
    return dict(zip(counts, torch.split(table, list(counts.values()), dim=1)))


def randint(u: Tensor, count: Tensor | int) -> Tensor:
    """Whole numbers 0 … count − 1, equally likely to 2⁻²⁴, out of uniform ones; in float64."""
    return (u * count).floor()


def normal(u: Tensor) -> Tensor:
    """Standard normal numbers out of uniform ones, by the inverse of the distribution function."""
    numbers: Tensor = torch.special.ndtri(u + 2.0**-25)
    return numbers


def _mixed(z: Tensor) -> Tensor:
    """splitmix64's mixing: each bit of the result depends on all bits of z."""
    z = _scrambled(z)
    return z ^ _shifted(z, 31)


def _scrambled(z: Tensor) -> Tensor:
    """The same but for the last step, which leaves the upper 31 bits alone. int64 products wrap, as they should."""
    z = (z ^ _shifted(z, 30)) * _FIRST
    return (z ^ _shifted(z, 27)) * _SECOND


def _shifted(z: Tensor, bits: int) -> Tensor:
    """z >> bits with zeros coming in from the left; torch's own shift of int64 brings in the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _wrapped(number: int) -> int:
    return _signed(number % 2**64)
