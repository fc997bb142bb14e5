"""Sheets of pictures: what is where, and that nothing is lost."""

import numpy as np
import pytest

from bort.pictures import BAD, to_svg
from bort.report._illustration import WIDTH
from bort.report._sheet import Cell, Row, Words, sheet


def pictures(count, height=4, width=4):
    return [Cell(np.full((height, width, 3), n, np.uint8), (Words(f"n{n}"),)) for n in range(count)]


def rows_of(figure):
    """The pictures of each row from above, by the numbers in them."""
    rows = {}
    for cell in figure.axes:
        box = cell.get_position()
        rows.setdefault(round(-box.y0, 4), []).append((box.x0, int(cell.images[0].get_array()[0, 0, 0])))
    return [[number for _, number in sorted(rows[y])] for y in sorted(rows)]


@pytest.mark.parametrize(
    ("count", "expected"), [(1, [[0]]), (6, [list(range(6))]), (8, [[0, 1, 2, 3], [4, 5, 6, 7]]), (13, 3)]
)
def test_at_most_six_beside_each_other(count, expected):
    figure = sheet([Row("a", pictures(count))])
    rows = rows_of(figure)
    assert (rows if isinstance(expected, list) else len(rows)) == expected
    assert sorted(number for row in rows for number in row) == list(range(count))
    assert figure.get_figwidth() * 96 == WIDTH


def test_a_broken_sheet_has_all_rows_in_each_part():
    figure = sheet([Row("input", pictures(8)), Row("run", pictures(8), "#123456")])
    assert rows_of(figure) == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7]]
    assert [text.get_text() for text in figure.texts if text.get_color() == "#123456"] == ["■", "■"]


def test_pictures_keep_their_proportions_and_words_their_place():
    figure = sheet([Row("a", pictures(3, height=8, width=16))])
    to_svg(figure)
    for number, cell in enumerate(figure.axes):
        box = cell.get_window_extent()
        assert box.width == pytest.approx(2 * box.height)
        (words,) = (text for text in figure.texts if text.get_text() == f"n{number}")
        x, y = words.get_position()
        assert box.x0 < x * WIDTH < box.x1
        assert 0 < y * figure.get_figheight() * 96 < box.y0, "below the picture, and on the sheet"


def test_long_words_are_broken_and_cut():
    cell = Cell(np.zeros((4, 4, 3), np.uint8), (Words("✗ great white shark, Carcharodon", BAD),))
    figure = sheet([Row("a", [cell] * 6)])
    shown = [text for text in figure.texts if text.get_color() == BAD]
    assert [text.get_text() for text in shown[:2]] == ["✗ great", "white sha…"]
    lows = [text.get_position()[1] for text in shown[:2]]
    assert lows[0] > lows[1]


def test_small_pictures_stay_sharp_and_large_ones_become_small():
    small, large = np.eye(3, dtype=np.uint8)[..., None].repeat(3, axis=2), np.zeros((500, 400, 3), np.uint8)
    figure = sheet([Row("a", [Cell(small), Cell(large)])])
    first, second = (cell.images[0].get_array() for cell in figure.axes)
    assert first.shape == (162, 162, 3)
    assert np.array_equal(first[::54, ::54], small)
    assert second.shape == (160, 128, 3)
