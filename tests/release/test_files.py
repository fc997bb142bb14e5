"""The files that a release brings with it say the same as the package."""

import re

import yaml

import bort
from tests.release.conftest import ROOT


def test_the_citation_is_of_this_version_and_of_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == bort.__version__
    assert citation["license"] == "Apache-2.0"
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Zhang", "Zheng", "Zhou", "Lu"]
    assert paper["year"] == 2023


def test_the_changelog_begins_with_this_version_and_its_day():
    first = re.search(r"^## (\S+), (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert first[1] == bort.__version__.removesuffix(".dev0")
    released = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8")).get("date-released")
    assert first[2] == (f"{released.day} {released:%B %Y}" if released else "not yet released")
    assert ("dev" in bort.__version__) == (released is None)
