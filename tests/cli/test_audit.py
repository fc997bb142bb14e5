"""`bort audit`"""

import json

import pytest

from bort import measure


def test_of_a_run(bort, run, capsys):
    bort("audit", run.path, "--count", 20, "--form", "json")
    rows = json.loads(capsys.readouterr().out)
    expected = measure.audit(run.model, run.examples(20)[0]).to_dict()
    assert [row["name"] for row in rows] == [row["name"] for row in expected]
    assert rows[0]["ratio"] == pytest.approx(expected[0]["ratio"])


def test_without_images(bort, run, capsys):
    bort("audit", run.path, "--count", 0, "--form", "markdown")
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("| layer |")
    assert "| – |" in shown[2], "nothing is measured on data"


@pytest.mark.parametrize(
    ("what", "layer"),
    [("timm/resnet18", "layer1.0.conv1.weight"), ("lenet", "conv1.weight"), ("tests.cli.networks:model", "fc1.weight")],
)
def test_of_a_network(bort, capsys, what, layer):
    bort("audit", what)
    shown = capsys.readouterr().out
    assert layer in shown
    assert "no, wide" in shown


def test_of_a_subject_with_images(bort, capsys):
    bort("audit", "tests.cli.networks:subject", "--count", 10, "--form", "json")
    assert json.loads(capsys.readouterr().out)[0]["ratio"] is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lenet", "--count", 7), "a network by itself has no images"),
        (("RUN", "--images", 7), "--images 7: this is a folder of images; --count says how many"),
        (("RUN", "--size", 64), "a run has its own"),
        (("lenett",), "'lenett' is neither the folder of a run nor a network"),
        ((".",), "is not a run"),
        (("tests.cli.networks:nothing",), "has no 'nothing'"),
    ],
)
def test_errors_are_said_in_a_line(bort, run, in_a_folder_of_its_own, arguments, message):
    with pytest.raises(SystemExit, match=f"bort audit: .*{message}"):
        bort("audit", *(run.path if argument == "RUN" else argument for argument in arguments))
