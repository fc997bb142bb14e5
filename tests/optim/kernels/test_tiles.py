"""How the tables are laid out: no GPU needed for that."""

import pytest
import torch

from bort.optim.kernels import Tuning

_tiles = pytest.importorskip("bort.optim.kernels._tiles")
from bort.optim.kernels._columns import MatrixRow, TileRow  # noqa: E402

SHAPES = [(300, 2000), (130, 70), (64, 64), (2000, 300)]


def tiling(shapes, *, keep_errors=True, **tuning):
    weights = [(10 + i, torch.randn(*shape)) for i, shape in enumerate(shapes)]
    return weights, _tiles.make_tiling(weights, keep_errors=keep_errors, tuning=Tuning(**tuning))


def rows(table, kind):
    return [kind(*row) for row in table.tolist()]


@pytest.fixture
def batch():
    """The weights, the one batch that they make, and the rows of its matrix table by the weights' positions."""
    weights, tables = tiling(SHAPES)
    (batch,) = tables.batches
    assert sorted(batch.members) == list(range(len(SHAPES)))
    return weights, batch, dict(zip(batch.members, rows(batch.matrices, MatrixRow), strict=True))


def test_a_row_describes_its_weight(batch):
    weights, _, matrices = batch
    for position, (slot, weight) in enumerate(weights):
        row = matrices[position]
        assert row.weight == weight.data_ptr()
        assert row.slot == slot
        assert (row.short, row.long) == (min(weight.shape), max(weight.shape))
        assert row.is_tall == (weight.shape[0] > weight.shape[1])
        for size, padded in ((row.short, row.short_padded), (row.long, row.long_padded)):
            assert size <= padded < size + 128
            assert padded % 128 == 0
        assert (row.error_start > 0) == (row.long < Tuning().short), "rounding errors are kept for short rows"


def test_scratch_is_shared_out_without_overlap(batch):
    _, batch, matrices = batch
    norm_end = x_end = e_end = probe_end = 0
    for position in batch.members:
        row = matrices[position]
        assert (row.x_start, row.e_start, row.first_norm, row.probe_start) == (x_end, e_end, norm_end, probe_end)
        x_size = row.short_padded * row.long_padded
        assert row.error_start in (0, x_size)
        x_end += x_size + row.error_start
        e_end += row.short_padded**2
        norm_end += row.norm_count
        probe_end += 2 * row.short_padded
    assert (batch.x_size, batch.e_size, batch.probe_size) == (x_end, e_end, probe_end)
    assert len(batch.gram_tiles) == norm_end


def test_every_tile_is_visited_once(batch):
    _, batch, matrices = batch
    gram = rows(batch.gram_tiles, TileRow)
    apply = [rows(tiles, TileRow) for tiles in batch.apply_tiles]
    for number, position in enumerate(batch.members):
        row = matrices[position]
        down, across = row.short_padded // 128, row.long_padded // 128
        triangle = [(tile.down, tile.across) for tile in gram if tile.matrix == number]
        assert sorted(triangle) == [(i, j) for i in range(down) for j in range(i + 1)]
        assert len(triangle) == row.norm_count
        product = [(tile.down, tile.across) for tile in apply[row.is_tall] if tile.matrix == number]
        assert sorted(product) == [(i, j) for i in range(down) for j in range(across)]
        assert not any(tile.matrix == number for tile in apply[1 - row.is_tall])


def test_a_batch_takes_no_more_scratch_than_it_may():
    room_for_two = 3 * 2 * 128 * 128 * 2
    _, tables = tiling([(100, 100)] * 4, scratch_bytes=room_for_two)
    assert [len(batch.members) for batch in tables.batches] == [2, 2]
    _, tables = tiling([(100, 900), (100, 100), (100, 100)], scratch_bytes=room_for_two)
    assert [batch.members for batch in tables.batches] == [(0,), (1, 2)], "one that needs more is by itself"


def test_results_lie_one_after_the_other():
    weights, tables = tiling(SHAPES)
    end = 0
    for (_, weight), (offset, shape, stride) in zip(weights, tables.results, strict=True):
        assert offset >= end
        assert (shape, stride) == (weight.shape, weight.stride())
        end = offset + weight.numel()
    assert tables.result_size >= end


def test_block_batches_have_one_shape_each():
    """Weights that are alone of their shape, or below the size, stay with the others."""
    shapes = [(300, 2000), (130, 70), (2000, 300), (300, 2000), (400, 1500), (2000, 300), (130, 70), (300, 2000)]
    _, tables = tiling(shapes, keep_errors=False, block_loads=True, block_batches=256)
    by_batch = {frozenset(shapes[member] for member in batch.members): batch for batch in tables.batches}
    assert set(by_batch) == {frozenset({(300, 2000)}), frozenset({(2000, 300)}), frozenset({(400, 1500), (130, 70)})}
    assert [by_batch[frozenset(some)].large for some in ({(300, 2000)}, {(2000, 300)})] == [3 * 512, 2 * 512]
    assert by_batch[frozenset({(400, 1500), (130, 70)})].large == 0
    for batch in tables.batches:
        for number, row in enumerate(rows(batch.matrices, MatrixRow)) if batch.large else []:
            assert row.x_start == number * row.short_padded * row.long_padded
            assert row.e_start == number * row.short_padded**2
