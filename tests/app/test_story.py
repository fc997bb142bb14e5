"""Sentences, of numbers made by hand."""

import pytest

from bort.app import _story as story
from bort.app._story import DELETED, INSERTED, KEPT, LOST, NEARER, Verdicts


def test_two_runs():
    values = {"SGD": 0.834, "Bort-S": 0.902}
    images = {"SGD": [0.81, 0.83, 0.95, 0.80], "Bort-S": [0.90, 0.91, 0.90, 0.89]}
    assert story.sentence([story.here(KEPT, values), story.over(KEPT, values, images)]) == (
        "Bort-S keeps more of this image than SGD: correlation 0.90 against 0.83; over 4 images the two are equal within "
        "noise, 0.90 and 0.85."
    ), "one image of four is the other way round by 0.05: the spread is as large as the difference"
    images["SGD"][2] = 0.84
    assert story.over(KEPT, values, images) == "over 4 images 0.90 against 0.82, more for 4 of them"


def test_what_did_not_improve_is_said():
    values = {"SGD": 0.90, "Bort-S": 0.83}
    images = {"SGD": [0.80, 0.81, 0.79, 0.92], "Bort-S": [0.90, 0.90, 0.91, 0.89]}
    assert story.here(KEPT, values) == "SGD keeps more of this image than Bort-S: correlation 0.90 against 0.83"
    assert story.over(KEPT, values, images) == (
        "over 4 images it is the other way round, 0.83 against 0.90, more for 1 of them"
    )
    assert story.maps({"SGD": 0.1, "Bort-S": 0.2}, {"SGD": 0.9, "Bort-S": 0.95}) == (
        "By deletion SGD's map is better than Bort-S's: area 0.100 against 0.200, by insertion Bort-S's is better than "
        "SGD's: area 0.950 against 0.900"
    )
    assert story.here(NEARER, {"Bort-S": 0.7, "SGD": 0.5}).startswith("SGD is nearer to WᵀW = I than Bort-S: largest")
    assert story.here(LOST, {"Bort-S": 0.9, "SGD": 0.5}) == (
        "SGD's layers lose less of their inputs than Bort-S's: mean ratio 0.50 against 0.90"
    )


def test_equal_numbers_are_called_equal():
    values = {"a": 0.901, "b": 0.899}
    assert story.here(KEPT, values) == "a and b keep equally much of this image: correlation 0.90 and 0.90"
    ahead = {"a": [0.5, 0.51, 0.5], "b": [0.6, 0.6, 0.6]}
    assert story.over(KEPT, values, ahead) == "over 3 images b is ahead, 0.60 against 0.50, more for 3 of them"
    same = {"a": [0.5, 0.6], "b": [0.5, 0.6]}
    assert story.over(KEPT, values, same) == "over 2 images the two are equal within noise, 0.55 and 0.55"
    assert story.here(DELETED, {"a": -0.0001, "b": 0.0002}).endswith("area 0.000 and 0.000"), "no -0.000"


@pytest.mark.parametrize(
    ("differences", "expected"),
    [([0.1, 0.1, 0.1], False), ([0.3, -0.2, 0.1], True), ([0.0, 0.0], True), ([0.1], False), ([1, 1, 1, -1], True)],
)
def test_noise(differences, expected):
    """The last: a mean of 0.5 with a standard error of 0.5."""
    assert story.within_noise(differences, [0.0] * len(differences)) is expected
    assert story.within_noise([0.0] * len(differences), differences) is expected


def test_one_run_is_not_compared():
    values = {"mine": 0.9}
    text = story.sentence([story.here(KEPT, values), story.over(KEPT, values, {"mine": [0.8, 0.9]})])
    assert text == "mine keeps this image with correlation 0.90; over 2 images 0.85."
    assert story.maps({"mine": 0.12}, {"mine": 0.9}) == (
        "mine's areas under the curves are 0.120 by deletion and 0.900 by insertion"
    )
    assert story.here(NEARER, values) == "mine's layers are up to 0.90 away from WᵀW = I (residual)"


def test_three_runs():
    values = {"a": 0.8, "b": 0.9, "c": 0.85}
    assert story.here(KEPT, values) == "Most of this image is kept by b: correlation 0.90 (b), 0.85 (c) and 0.80 (a)"
    assert story.here(KEPT, values | {"c": 0.9}).startswith("Most of this image is kept by b and c:")
    assert story.over(KEPT, values, {"a": [1, 1], "b": [0, 1], "c": [0, 0]}) == (
        "over 2 images 1.00 (a), 0.50 (b) and 0.00 (c)"
    )
    assert story.here(INSERTED, dict.fromkeys("abc", 0.5)) == (
        "by insertion those of a, b and c are equally good: area 0.500, 0.500 and 0.500"
    )


def test_both_areas_agree():
    assert story.maps({"a": 0.1, "b": 0.2}, {"a": 0.9, "b": 0.8}) == (
        "a's map is better than b's by deletion (area 0.100 against 0.200) and by insertion (0.900 against 0.800)"
    )
    assert "equally good" in story.maps({"a": 0.1, "b": 0.2}, {"a": 0.9, "b": 0.9})


def test_who_is_fooled():
    said = {
        "a": Verdicts("7", "3", "3"),
        "b": Verdicts("7", "3", "7"),
        "c": Verdicts("7", "3", "9"),
        "d": Verdicts("9", "9", "9"),
    }
    assert story.fooled(said).split("; ") == [
        "a is fooled: it says “3” of the made picture, as of the target",
        "b is not fooled: it says “7”, as of the source",
        "c is not fooled: it says “9”, which is neither the source nor the target",
        "d says “9” of both images, so it cannot be fooled here",
    ]
    assert story.rates({"a": [said["a"], said["b"], said["d"]], "b": [said["c"]], "c": [said["d"]]}) == (
        "a is fooled by 1 of 2 pairs that it tells apart and b is fooled by 0 of 1 pairs that it tells apart"
    )


def test_nothing_is_no_sentence():
    assert story.sentence(["", ""]) == ""


def test_how_many_images_are_named_rightly():
    right = {"a": [True] * 3 + [False] * 17, "b": [True] * 18 + [False] * 2}
    assert story.found(right, 16) == "b is right more often than a: 18 and 3 of 20 test images; they do not agree on 16"
    near = {"a": [True, False, True], "b": [True, True, False]}
    assert story.found(near, 2) == (
        "a and b are right equally often within noise: 2 and 2 of 3 test images; they do not agree on 2"
    )
    assert story.found({"a": [True, False]}, 0) == "a is right for 1 of 2 test images"
    three = near | {"c": [False] * 3}
    assert story.found(three, 3) == (
        "a is right for 2, b is right for 2 and c is right for 0 of 3 test images; they do not agree on 3"
    )
