"""Colours: of runs on both papers, of signed values, and for people who do not see all of them."""

import re
from importlib.resources import files
from itertools import combinations, product

import numpy as np
import pytest

from bort._colours import DIFFERENT, HEAT, NEGATIVE, POSITIVE, colour, diverging, lightness, luminance, stylesheet

# Linear RGB as seen without one of the three kinds of cones: Machado, Oliveira and Fernandes (2009), severity 1.
SEEN = {
    "all": np.eye(3),
    "no long": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no middle": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no short": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def rgb(code):
    return np.array([int(code[i : i + 2], 16) for i in (1, 3, 5)])


def contrast(one, other):
    """WCAG 2's contrast ratio."""
    dark, light = sorted((luminance(one).item(), luminance(other).item()))
    return (light + 0.05) / (dark + 0.05)


def lab(colour, seen):
    part = np.asarray(colour) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(SEEN[seen]) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ linear / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(one, other, seen):
    """ΔE of CIE 1976; 2.3 is just noticeable."""
    return np.linalg.norm(lab(one, seen) - lab(other, seen))


def test_luminance_of_known_colours():
    assert luminance(np.array([[0, 0, 0], [255, 255, 255], [255, 0, 0]])) == pytest.approx([0, 1, 0.2126])
    assert lightness(np.array([119, 119, 119])) == pytest.approx(50, abs=0.1)


def papers(style):
    """The backgrounds, paper and card, that a stylesheet declares first for light and then for dark paper."""
    codes = re.findall(r"--(?:paper|card): (#[0-9a-f]+);", style)[:4]
    found = [rgb(code if len(code) == 7 else "#" + "".join(2 * digit for digit in code[1:])) for code in codes]
    return {False: found[:2], True: found[2:]}


@pytest.mark.parametrize(("package", "name"), [("bort.app", "page/app.css"), ("bort.report", "page.css")])
def test_runs_stand_out_on_every_paper(package, name):
    """4.5 : 1 is enough for text, 3 : 1 would do for lines."""
    backgrounds = papers(files(package).joinpath(name).read_text())
    assert all(luminance(paper) < 0.05 for paper in backgrounds[True])
    for dark, number in product((False, True), range(DIFFERENT)):
        assert min(contrast(rgb(colour(number, dark=dark)), paper) for paper in backgrounds[dark]) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("seen", SEEN)
def test_runs_can_be_told_apart(dark, seen):
    colours = [rgb(colour(number, dark=dark)) for number in range(DIFFERENT)]
    apart = {pair: distance(colours[pair[0]], colours[pair[1]], seen) for pair in combinations(range(DIFFERENT), 2)}
    assert apart[0, 1] > 80
    assert min(apart[pair] for pair in apart if max(pair) < 3) > 18
    assert min(apart.values()) > 14


def test_colours_repeat_after_the_last():
    assert len({colour(number) for number in range(DIFFERENT)}) == DIFFERENT
    assert colour(DIFFERENT) == colour(0)
    assert colour(DIFFERENT, dark=True) == colour(0, dark=True)


def test_zero_is_neutral_and_the_scale_symmetric():
    colours = diverging()
    assert colours.shape == (511, 3)
    assert colours[255].tolist() == [0, 0, 0]
    up, down = lightness(colours[255:]), lightness(colours[255::-1])
    assert (np.diff(up) > 0).all()
    assert (np.diff(down) > 0).all()
    assert up == pytest.approx(down, abs=0.8), "as light on both sides: one byte is up to 0.8"
    assert up == pytest.approx(np.linspace(0, 92, 256), abs=0.8), "lightness is the value"


@pytest.mark.parametrize("seen", SEEN)
def test_signs_can_be_told_apart(seen):
    for size in (32, 64, 128, 192, 255):
        assert distance(diverging()[255 + size], diverging()[255 - size], seen) > 15
    assert distance(POSITIVE, NEGATIVE, seen) > 60


def test_the_legend_of_maps_is_inferno():
    import matplotlib

    inferno = matplotlib.colormaps["inferno"]
    assert [matplotlib.colors.to_hex(inferno(n / 8)) for n in range(9)] == list(HEAT)


def test_variables_for_as_many_runs_as_there_are():
    light, dark = stylesheet(8).split("@media")
    for number in range(8):
        assert f"--run-{number}: {colour(number)};" in light
        assert f"--run-{number}: {colour(number, dark=True)};" in dark
    stops = re.findall(r"#\w+", re.search(r"--signed: .*?;", light)[0])
    assert stops[5] == "#000000", "zero is in the middle"
    assert len(stops) == 11
