"""The explorer's numbers over test images are the report's: over the same images, and it says how many."""

from dataclasses import replace

from bort.app import Explorer
from bort.report import measured
from bort.subject import ImageSet, Missing


def test_the_audit_is_the_report_s(subjects, client_of):
    client = client_of(Explorer(subjects))
    for reported in measured(subjects):
        answer = client.get("/api/audit", params={"run": reported.name}).json()
        images = len(reported.images(reported.sizes.measured))
        assert answer["n"] == images > 32
        expected = reported.audit.to_dict()
        assert expected[0]["cosine"] is not None
        assert [{key: layer[key] for key in row} for layer, row in zip(answer["layers"], expected, strict=True)] == [
            {key: list(value) if isinstance(value, tuple) else value for key, value in row.items()} for row in expected
        ]


class CountedImages(ImageSet):
    """Images that say how often they were read."""

    def __init__(self, images):
        self._images, self.labels, self.count = images, images.labels, 0

    labels = None

    def read(self, place):
        self.count += 1
        return self._images.read(place)


def test_images_are_read_when_a_number_needs_them(subjects):
    images = CountedImages(subjects[0].examples)
    explorer = Explorer([replace(subject, examples=images) for subject in subjects], examples=6)
    explorer.prepare()
    assert images.count == 6, "the start does not wait for images that only the audit needs"
    explorer.audit("plain")
    assert images.count >= 6 + explorer.image_count("plain") > 6 + 32


def test_without_images_it_says_so(subjects, client_of):
    def gone(count):
        raise Missing("no such folder")

    client = client_of(Explorer([replace(subjects[0], examples=gone)]))
    assert client.get("/api/audit?run=plain").json()["n"] == 0
    page = client.get("/api/export.html?view=audit").text
    assert "are not measured: there are no test images" in page


def test_an_exported_audit_says_how_many(client, explorer):
    n = client.get("/api/audit?run=plain").json()["n"]
    assert f"over {n} test images" in client.get("/api/export.html?view=audit").text
