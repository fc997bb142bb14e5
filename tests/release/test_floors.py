"""docs/floors.json: the oldest versions that pyproject.toml allows have been tried, and all tests passed."""

import json

import pytest

from tests.release import floors

RECORD = json.loads(floors.RESULT.read_text())


def test_they_are_those_of_pyproject():
    """After a change of a floor: `make floors`."""
    assert list(RECORD["versions"]) == ["python", *floors.floors()]
    for name, floor in floors.floors().items():
        tried = RECORD["versions"][name].split("+")[0]
        assert tried.removesuffix(".0") == floor.removesuffix(".0") or tried.startswith(f"{floor}."), name


@pytest.mark.parametrize("part", floors.PARTS)
def test_every_part_passed(part):
    result = RECORD["results"][part]
    assert result["tests"] == floors.PARTS[part]
    assert result["failed"] == []
    assert result["passed"] > 10


def test_every_test_is_in_a_part():
    """But for those of the release, which are about files and make environments of their own."""
    named = [floors.ROOT / path for part in floors.PARTS.values() for path in part.split()]
    files = set((floors.ROOT / "tests").rglob("test_*.py")) - set((floors.ROOT / "tests" / "release").iterdir())
    assert sorted(file for file in files if not any(file.is_relative_to(path) for path in named)) == []


def test_everything_that_is_named_exists():
    for part in floors.PARTS.values():
        assert all((floors.ROOT / path).exists() for path in part.split())
    assert all((floors.ROOT / test.partition("::")[0]).is_file() for test in floors.LEFT_OUT)
