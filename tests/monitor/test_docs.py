"""The snippets of docs/monitor.md run as they stand."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "monitor.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def run(snippet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "snippet"}
    exec(compile(snippet, str(PAGE), "exec"), names)
    return names


def test_a_plain_loop(tmp_path, monkeypatch, capsys):
    run(SNIPPETS[0], tmp_path, monkeypatch)
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["0", "100", "200", "300"]
    assert all("bort/pull" in line for line in lines)


@pytest.mark.slow
@pytest.mark.filterwarnings("default", "error:bort.monitor")
def test_lightning(tmp_path, monkeypatch):
    run(SNIPPETS[1], tmp_path, monkeypatch)
    (file,) = tmp_path.rglob("metrics.csv")
    header, *rows = file.read_text().splitlines()
    steps = [row.split(",")[header.split(",").index("step")] for row in rows]
    assert steps == ["0", "100", "200"]


@pytest.mark.slow
@pytest.mark.filterwarnings("default", "error:bort.monitor")
def test_hugging_face(tmp_path, monkeypatch):
    trainer = run(SNIPPETS[2], tmp_path, monkeypatch)["trainer"]
    logged = {logs["step"]: logs for logs in trainer.state.log_history if "bort/residual_largest" in logs}
    assert list(logged) == [0, 100, 200]
    assert logged[200]["bort/residual_largest"] < logged[0]["bort/residual_largest"]


def test_all_snippets_are_run():
    assert len(SNIPPETS) == 3
