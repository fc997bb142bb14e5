"""The explorer's numbers over test images are the report's: over the same images, and it says how many."""

from dataclasses import replace

from bort.app import Explorer
from bort.report import measured
from bort.subject import Missing


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


def test_images_are_read_when_a_number_needs_them(subjects):
    asked = []

    def counted(subject):
        def examples(count):
            asked.append(count)
            return subject.examples(count)

        return replace(subject, examples=examples)

    explorer = Explorer([counted(subject) for subject in subjects], examples=6)
    at_the_start = list(asked)
    explorer.prepare()
    assert asked == at_the_start
    assert max(at_the_start) < 64, "the start does not wait for images that only the audit needs"
    explorer.audit("plain")
    assert asked[-1] == 64


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
