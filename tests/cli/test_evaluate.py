"""`bort evaluate`"""

import json

import numpy as np
import pytest

from bort import measure


def test_two_runs(run, bort, tmp_path, capsys):
    out = tmp_path / "out"
    bort("evaluate", run.path, run.path, "--methods", "cam", "sat", "--k", 4, "--count", 6, "--steps", 7, "--out", out)
    shown = capsys.readouterr().out
    assert shown.count("1-small") == shown.count("2-small") == 2
    x = run.examples(6)[0]
    expected = measure.evaluate(run.model, x, ["sat"], steps=7, options={"sat": {"k": 4}})["sat"]
    np.testing.assert_allclose(np.load(out / "1-small-sat-maps.npy"), expected.maps, rtol=1e-5)
    manifest = json.loads((out / "manifest.json").read_text())
    result = next(r for r in manifest["results"] if (r["run"], r["method"]) == ("2-small", "sat"))
    for score, curves in expected.scores.items():
        assert result["areas"][score] == pytest.approx(curves.means, rel=1e-4)
        np.testing.assert_allclose(
            np.load(out / f"1-small-sat-{score}-deletion.npy"), curves.deletion_curves, rtol=1e-4
        )
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_network_that_no_run_has_trained(bort, in_a_folder_of_its_own, tmp_path, capsys):
    bort("evaluate", "tests.cli.networks:subject", "--methods", "cam", "--count", 2, "--steps", 4)
    assert "cam" in capsys.readouterr().out
    assert (tmp_path / "evaluated" / "cam-maps.npy").exists()


def test_what_could_not_be_measured_is_said(bort, in_a_folder_of_its_own, tmp_path, capsys):
    """All logits are 0: no relative score, and CAM has nothing to show. JSON has no nan."""
    bort("evaluate", "tests.cli.networks:untrained_head", "--methods", "cam", "--count", 2, "--steps", 4)
    shown = capsys.readouterr().out
    assert shown.count("2 of 2 images have no relative score") == 1
    assert shown.count("The map of cam is the same number everywhere for 2 of 2 images") == 1
    assert "–" in next(line for line in shown.splitlines() if line.startswith("cam"))
    manifest = json.loads((tmp_path / "evaluated" / "manifest.json").read_text(), parse_constant=pytest.fail)
    (result,) = manifest["results"]
    assert result["areas"]["relative"] == [None, None]
    assert result["counted"] == {"probability": 2, "logit": 2, "relative": 0}
    assert result["constant"] == 2
    assert [len(sentences) for sentences in manifest["notes"].values()] == [2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name the folder of a run"),
        (("RUN", "--method", "cam", "--k", 3), "--k 3 says nothing to cam; it is for sat"),
        (("RUN", "--method", "cam", "--option", "layer=conv9"), "no layer 'conv9'"),
        (("timm/resnet18", "--method", "cam"), "timm/resnet18 has no test images"),
        (("RUN", "lenet"), "they are on different data"),
    ],
)
def test_errors_are_said_in_a_line(bort, run, in_a_folder_of_its_own, tmp_path, arguments, message):
    with pytest.raises(SystemExit, match=f"bort evaluate: .*{message}"):
        bort("evaluate", *(run.path if argument == "RUN" else argument for argument in arguments))
    assert not (run.path / "evaluated").exists()
    assert list(tmp_path.iterdir()) == [], "nothing half-written"
