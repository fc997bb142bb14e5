"""Where a report's figures are in the explorer."""

import re
from html import unescape
from urllib.parse import parse_qsl

import pytest
import torch

from bort.app import Explorer
from bort.app._page_state import page_defaults
from bort.report import make, measured
from bort.subject import Subject, resolve_all
from tests.report.sizes import SMALL


def test_the_explorer_knows_the_addresses(report):
    known = page_defaults()
    addresses = [a for illustration in report.illustrations for a in illustration.addresses]
    assert len(addresses) > 15
    for address in addresses:
        for name, value in parse_qsl(address.query.removeprefix("?"), strict_parsing=True):
            assert name in known["state"]
            assert value in known["choices"].get(name, [value])


def test_images_have_the_explorers_names(runs, report):
    """test-1 is the second image of a figure, also if the explorer asks for another number of images."""
    explorer = Explorer(resolve_all(runs), examples=6)
    subject = measured(resolve_all(runs), SMALL)[0]
    names = [image.name for image in explorer.gallery.list()]
    for number in range(SMALL.shown):
        assert f"test-{number}" in names
        assert torch.equal(explorer.image(subject.name, f"test-{number}")[0], subject.images(6)[number])
        assert explorer.gallery[f"test-{number}"].label == subject.view.name(int(subject.labels(6)[number]))


def test_addresses_can_be_copied(report):
    (reconstruction,) = (one for one in report.illustrations if one.name == "reconstruction")
    assert [address.query for address in reconstruction.addresses] == [f"?view=inside&image=test-{n}" for n in range(3)]
    assert "<code>?view=inside&amp;image=test-0</code>" in report.page
    assert '<a href="http' not in report.page


@pytest.mark.parametrize("address", ["http://localhost:8765", "https://example.org/bort/"])
def test_with_an_explorers_address_they_are_links(subjects, address):
    page = make([Subject("plain", subjects[0].model)], explorer=address).page
    links = [unescape(link) for link in re.findall(r'<a href="(http[^"]+)"', page)]
    assert links == [f"{address.rstrip('/')}/?view=audit"] * 2


@pytest.mark.parametrize("address", ["localhost:8765", "javascript:alert(1)", "http://localhost:8765/?token=secret"])
def test_other_addresses_are_refused(subjects, address):
    with pytest.raises(ValueError, match="give its address alone, such as http://localhost:8765"):
        make(subjects, explorer=address)
