"""Images as each network sees them, and runs whose data is not at hand."""

import io
from dataclasses import replace

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from bort.app._explorer import Explorer
from bort.app._access import Guard
from bort.app._server import create
from bort.report import _subject
from tests.app.pages import BASE
from tests.pages import network


def test_each_run_sees_an_image_as_it_was_trained_to(runs):
    """Two trainings may normalise differently."""

    def other(run, root=None):
        return replace(real(run, root), mean=(0.5,), std=(2.0,)) if run.path.name != "plain" else real(run, root)

    with pytest.MonkeyPatch.context() as patch:
        real = _subject.view_of_run
        patch.setattr(_subject, "view_of_run", other)
        patch.setattr("bort.train._run.build", network)
        explorer = Explorer(runs, examples=2)
        buffer = io.BytesIO()
        Image.fromarray(np.full((28, 28), 51, dtype=np.uint8)).save(buffer, "PNG")
        name = explorer.upload(buffer.getvalue())
        assert explorer.image("<b>&$\\alpha$", name).mean().item() == pytest.approx((0.2 - 0.5) / 2)
        assert explorer.image("plain", name).mean().item() != pytest.approx((0.2 - 0.5) / 2)


def test_without_data_an_upload_is_enough(runs, monkeypatch):
    def gone(*_):
        raise OSError("no such folder")

    monkeypatch.setattr("bort.report._subject.examples", gone)
    explorer = Explorer(runs)
    with TestClient(create(explorer, Guard(("localhost:8765",))), base_url=BASE) as client:
        info = client.get("/api/info").json()
        assert (info["images"], info["runs"][0]["layers"], info["runs"][0]["top"]) == ([], [], "")
        buffer = io.BytesIO()
        Image.fromarray(np.eye(28, dtype=np.uint8) * 200).save(buffer, "PNG")
        name = client.post("/api/upload", content=buffer.getvalue()).json()["image"]
        assert client.get("/api/info").json()["runs"][0]["top"] == "conv5"
        ask = {"run": "plain", "image": name, "method": "sat"}
        assert client.get("/api/saliency", params=ask).status_code == 200
        assert client.get("/api/audit?run=plain").status_code == 200
