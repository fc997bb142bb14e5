"""Saliency maps, curves and slow methods: the explorer's answers, against the library's."""

import numpy as np
import pytest
import torch

from bort import explain, measure
from bort.app._calculations import Calculations
from tests.app.pages import no_passes, pixels


def test_sat_needs_no_new_pass_for_its_sliders(client, explorer, here):
    ask = {"run": "plain", "image": "test-0", "method": "sat"}
    client.get("/api/saliency", params=ask)
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    expected = explorer.saliency.overlay("plain", "test-0", explain.sat(model, x, k=3, threshold=0.4)[0])
    with no_passes(explorer):
        answer = client.get("/api/saliency", params=ask | {"k": 3, "threshold": 0.4}).json()
    assert np.array_equal(pixels(answer["picture"]), expected)


def test_curves_and_steps(client, explorer):
    ask = {"run": "plain", "image": "test-0", "method": "cam"}
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    expected = measure.all_scores(model, x, explain.cam(model, x))
    curve = client.get("/api/curve", params=ask).json()
    assert curve["relative"]["deletion"] == pytest.approx(expected["relative"].deletion_curves[0].tolist(), rel=1e-4)
    for which in ("deletion", "insertion"):
        for step in (0, 9, 28):
            at = client.get("/api/step", params=ask | {"step": step, "which": which}).json()
            part = pixels(at["picture"]) == pixels(client.get("/api/input.png?image=test-0").content)
            kept = step / 28 if which == "insertion" else 1 - step / 28
            assert part.all(axis=2).mean() >= kept - 1e-3, "what is not taken away is the image's"
            if kept == 0:
                assert pixels(at["picture"]).std() == 0, "and what is taken away is gone"
            assert curve["probability"][which][step] == pytest.approx(
                getattr(expected["probability"], f"{which}_curves")[0][step].item(), abs=1e-5
            )


def test_a_curve_without_a_relative_score(client, explorer):
    """A class with a negative logit: null, which JSON has, and not nan."""
    model, x = explorer.subjects["plain"].model, explorer.image("plain", "test-0")
    ask = {"run": "plain", "image": "test-0", "method": "cam", "target": int(model(x).argmin())}
    assert model(x).min() < 0
    curve = client.get("/api/curve", params=ask).json()
    assert curve["relative"] == {"deletion": [None] * 29, "insertion": [None] * 29, "areas": [None, None]}
    assert None not in curve["logit"]["areas"]


def test_slow_methods_go_through_the_queue(client, explorer):
    ask = {"run": "plain", "image": "test-0", "method": "rise"}
    early = client.get("/api/saliency", params=ask)
    assert early.status_code == 404
    assert "start it first" in early.json()["message"]
    job = client.post("/api/jobs", params=ask).json()
    while job["state"] in ("waiting", "running"):
        job = client.get(f"/api/jobs/{job['job']}").json()
    assert job["state"] == "done"
    assert job["done"] == job["total"]
    expected = explain.rise(explorer.subjects["plain"].model, explorer.image("plain", "test-0"))[0]
    torch.testing.assert_close(explorer.saliency.map("plain", "test-0", "rise"), expected)
    assert client.get("/api/saliency", params=ask).status_code == 200


def test_a_map_that_was_computed_stays(client, explorer, here):
    ask = {"run": "plain", "image": "test-4", "method": "guided-ig"}
    job = client.post("/api/jobs", params=ask).json()
    while job["state"] in ("waiting", "running"):
        job = client.get(f"/api/jobs/{job['job']}").json()
    for n in range(6):
        for layer in ("conv1", "conv2", "conv3", "conv4", "conv5"):
            for run in explorer.subjects:
                client.get("/api/channel.png", params={"run": run, "image": f"test-{n}", "layer": layer, "channel": 0})
                client.get("/api/saliency", params={"run": run, "image": f"test-{n}", "method": "ig", "target": n})
    assert client.post("/api/jobs", params=ask).json()["state"] == "done"
    assert client.get("/api/saliency", params=ask).status_code == 200


def test_too_many_calculations(explorer, client_of):
    client = client_of(explorer, calculations=Calculations(waiting=1))
    requests = ({"run": "plain", "image": f"test-{n}", "method": "xrai"} for n in range(6))
    answers = [client.post("/api/jobs", params=request) for request in requests]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert refused
    assert "waiting already" in refused[0].json()["message"]
    for answer in answers:
        if answer.status_code == 200:
            client.delete(f"/api/jobs/{answer.json()['job']}")
