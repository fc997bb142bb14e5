"""Images as each network sees them, and subjects of other kinds than runs with their data."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from bort.app import Explorer
from bort.data import View
from bort.subject import Missing, Subject

OTHER = "<b>&$\\alpha$"


def file(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def test_each_run_sees_an_image_as_it_was_trained_to(subjects):
    """Two trainings may normalise differently."""
    plain, other = subjects
    explorer = Explorer([plain, replace(other, view=replace(other.view, mean=(0.5,), std=(2.0,)))], examples=2)
    name = explorer.upload(file(np.full((28, 28), 51, dtype=np.uint8)))
    assert explorer.image(OTHER, name).mean().item() == pytest.approx((0.2 - 0.5) / 2)
    assert explorer.image("plain", name).mean().item() != pytest.approx((0.2 - 0.5) / 2)


def test_without_data_an_upload_is_enough(subjects, client_of):
    def gone(count):
        raise Missing("no such folder")

    client = client_of(Explorer([replace(subject, examples=gone) for subject in subjects]))
    info = client.get("/api/info").json()
    assert (info["images"], info["runs"][0]["layers"], info["runs"][0]["top"]) == ([], [], "")
    name = client.post("/api/upload", content=file(np.eye(28, dtype=np.uint8) * 200)).json()["image"]
    assert client.get("/api/info").json()["runs"][0]["top"] == "conv5"
    ask = {"run": "plain", "image": name, "method": "sat"}
    assert client.get("/api/saliency", params=ask).status_code == 200
    assert client.get("/api/audit?run=plain").status_code == 200


def test_a_network_that_no_run_has_trained(client_of):
    """A view is all that the explorer needs besides the model."""
    body = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Dropout(0.5))
    model = nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)).train()
    view = View(16, 3, (0.5,) * 3, (0.25,) * 3, tuple("abcd"))
    client = client_of(Explorer([Subject("mine", model, view)]))
    name = client.post("/api/upload", content=file(np.eye(16, dtype=np.uint8) * 200)).json()["image"]
    info = client.get("/api/info").json()
    assert info["runs"][0]["recipe"] == ""
    assert info["classes"] == list("abcd")
    answers = [client.get("/api/predict", params={"run": "mine", "image": name}).json() for _ in range(2)]
    assert answers[0] == answers[1], "without dropout"
    assert {answer["name"] for answer in answers[0]} == set("abcd")
    assert model.training, "it is left as it was"


def test_a_network_whose_view_is_not_known():
    with pytest.raises(ValueError, match="it is not known how mine sees an image"):
        Explorer([Subject("mine", nn.Conv2d(1, 1, 1), examples=lambda count: (torch.rand(count, 1, 4, 4), None))])
    with pytest.raises(ValueError, match="the explorer needs a subject"):
        Explorer([])
