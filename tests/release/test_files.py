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


def test_the_changelog_begins_with_this_version():
    first = re.search(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert first[1] == bort.__version__.removesuffix(".dev0")
