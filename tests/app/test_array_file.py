"""Files of the cache folder: what is damaged anywhere is made anew, and never an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bort.app import _array_file
from bort.app import _index_store as store
from bort.app._index_store import RunIndex


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    file = tmp_path_factory.mktemp("cache") / "index.npz"
    _array_file.write(file, RunIndex.empty(5))
    return file, file.read_bytes()


@given(data=some.data())
def test_a_changed_bit_is_no_error(good, data):
    file, content = good
    place = data.draw(some.integers(0, 8 * len(content) - 1))
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    file.write_bytes(changed)
    store.read(file, 5)


@pytest.mark.parametrize(
    ("after", "byte", "bit"),
    [(b"PK\x01\x02", 10, 0x40), (b"PK\x01\x02", 8, 0x01), (b"PK\x01\x02", 6, 0x40)],
    ids=["a compression that nobody knows", "encrypted", "a later version"],
)
def test_what_a_zip_file_can_claim(good, after, byte, bit):
    file, content = good
    changed = bytearray(content)
    changed[content.index(after) + byte] ^= bit
    file.write_bytes(changed)
    assert store.read(file, 5) is None
