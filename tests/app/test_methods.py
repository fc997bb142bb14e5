"""Methods of other packages, registered while the server runs: accepted, described, and slow if they say so."""

import threading

import pytest
import torch

from bort import explain
from bort.app._calculations import Calculations


def brightness(model, x, target=None):
    return x.mean(dim=1)


@pytest.fixture
def registered(client):
    client.get("/openapi.json")  # a description made now must not be the last word
    with explain.local_registry():
        explain.register("brightness", brightness)
        explain.register("slow-brightness", brightness, slow=True)
        yield client


def test_they_are_among_the_methods(registered):
    info = registered.get("/api/info").json()
    assert {"brightness", "slow-brightness"} <= set(info["methods"])
    assert "slow-brightness" in info["slow"]
    assert "brightness" not in info["slow"]


def test_a_fast_one(registered, explorer):
    ask = {"run": "plain", "image": "test-0", "method": "brightness"}
    assert registered.get("/api/saliency", params=ask).status_code == 200
    expected = explorer.image("plain", "test-0").mean(dim=1)[0]
    assert torch.equal(explorer.saliency.map("plain", "test-0", "brightness"), expected)


def test_a_slow_one_without_progress(registered):
    ask = {"run": "plain", "image": "test-0", "method": "slow-brightness"}
    assert registered.get("/api/saliency", params=ask).status_code == 404, "it must be started first"
    status = registered.post("/api/jobs", params=ask).json()
    while status["state"] in ("waiting", "running"):
        status = registered.get(f"/api/jobs/{status['job']}").json()
    assert (status["state"], status["done"], status["total"]) == ("done", 1, 1)
    assert registered.get("/api/saliency", params=ask).status_code == 200


def test_a_result_that_is_there_is_no_failure(client_of, explorer):
    """Without progress nothing can stop it: it may have been cancelled, or have taken too long."""
    begun, go, queue = threading.Event(), threading.Event(), Calculations(seconds=0)

    def lazy(model, x, target=None):
        begun.set()
        assert go.wait(10)
        return x[:, 0]

    with explain.local_registry():
        explain.register("lazy", lazy, slow=True)
        client, ask = client_of(explorer, calculations=queue), {"run": "plain", "image": "test-0", "method": "lazy"}
        job = client.post("/api/jobs", params=ask).json()["job"]
        assert begun.wait(10)
        client.delete(f"/api/jobs/{job}")
        go.set()
        assert queue.get(job).finished.wait(10)
        assert queue.get(job).state == "done"
        assert client.get("/api/saliency", params=ask).status_code == 200


def test_only_slow_ones_are_queued(registered):
    ask = {"run": "plain", "image": "test-0"}
    fast = registered.post("/api/jobs", params=ask | {"method": "brightness"})
    assert (fast.status_code, "/api/saliency" in fast.json()["message"]) == (400, True)
    assert registered.post("/api/jobs", params=ask | {"method": "nothing"}).status_code == 404


def test_they_are_in_the_description(registered):
    paths = registered.get("/openapi.json").json()["paths"]

    def choices(path, method="get"):
        return next(p["schema"]["enum"] for p in paths[path][method]["parameters"] if p["name"] == "method")

    assert choices("/api/saliency") == choices("/api/export.zip") == explain.names()
    assert choices("/api/jobs", "post") == [name for name in explain.names() if explain.get(name).slow]
