"""The explorer beside a program that goes on."""

import contextlib
import gc
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
import weakref

import pytest
import torch

import bort
from bort import nets
from bort.app import Explorer
from bort.subject import of_models


@pytest.fixture
def others():
    """Threads that were there before: explorers of other tests may still be ending."""
    return set(threading.enumerate())


@pytest.fixture
def page(others):
    torch.manual_seed(0)
    models = {"one": nets.create("lenet"), "other": nets.create("lenet")}
    with bort.explore(models, torch.rand(4, 1, 28, 28), labels=[0, 1, 2, 3]) as exploration:
        yield exploration


def get(exploration, path, **headers):
    host = exploration.address.removeprefix("http://").rstrip("/")
    with contextlib.closing(http.client.HTTPConnection(host, timeout=20)) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()


def test_it_answers_until_it_is_closed(page):
    answer, content = get(page, "/api/info")
    info = json.loads(content)
    assert [run["name"] for run in info["runs"]] == ["one", "other"]
    assert len(info["images"]) == 4
    assert answer.status == 200
    page.close()
    page.close()
    with pytest.raises(ConnectionError):
        get(page, "/api/info")
    assert "closed" in repr(page)
    assert "<iframe" not in page._repr_html_()


def test_an_image_may_have_several_classes():
    """The probabilities are then sigmoids, and need not sum to 1."""
    model, x = nets.create("lenet"), torch.rand(1, 1, 28, 28)
    expected = model.eval()(x).sigmoid()[0].sort(descending=True).values[:5].tolist()
    with bort.explore(model, x, multi_label=True) as page:
        answers = json.loads(get(page, "/api/predict?run=model&image=test-0")[1])
    assert [answer["probability"] for answer in answers] == pytest.approx(expected)


def test_its_threads_end_with_it(page, others):
    def threads():
        found = set(threading.enumerate()) - others
        return [each.name for each in found if each.name.startswith(("bort-", "AnyIO"))]

    get(page, "/api/info")
    assert threads()
    page.close()
    for _ in range(200):
        if not threads():
            break
        time.sleep(0.05)
    assert threads() == []


def test_closed_it_holds_nothing():
    """Neither the page, which a notebook keeps, nor a cache of FastAPI's, which keeps endpoints until Python ends."""
    model = nets.create("lenet")
    page, alive = bort.explore(model, torch.rand(4, 1, 28, 28)), weakref.ref(model)
    del model
    for path in ("info", "find", "atlas?run=model&layer=conv2", "story?view=inside&image=test-0"):
        assert get(page, f"/api/{path}")[0].status == 200
    host = page.address.removeprefix("http://").rstrip("/")
    with contextlib.closing(http.client.HTTPConnection(host, timeout=20)) as connection:
        connection.request("POST", "/api/jobs?run=model&image=test-0&method=xrai")
        assert connection.getresponse().status == 200
    page.close()
    for _ in range(100):  # the threads that still compute come to their end
        gc.collect()
        if alive() is None:
            break
        time.sleep(0.05)
    assert alive() is None


LEAVES = """
import time, urllib.request
import torch
import bort

class Long(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.more = bort.nets.create("lenet"), torch.nn.Conv2d(8, 8, 3, padding=1)
    def forward(self, x):
        y = torch.ones(1, 8, 16, 16)
        for _ in range(1000):  # in and out of torch, which is where a thread must not be when Python ends
            y = self.more(y)
        return self.body(x) + 0 * y.mean()

page = bort.explore(Long(), torch.rand(64, 1, 28, 28))
urllib.request.urlopen(page.address + "api/find").read()
for number in range(2):
    request = urllib.request.Request(page.address + f"api/jobs?run=model&image=test-{number}&method=rise", method="POST")
    urllib.request.urlopen(request).read()
time.sleep(0.5)
"""


LEAVES_WHILE_IT_READS = """
import threading, time, urllib.request
import torch
import bort

class Photographs:
    photograph, passes = torch.rand(1, 3, 1200, 1800), 1
    def __len__(self):
        return 600
    def __getitem__(self, number):
        for _ in range(self.passes):
            x = torch.nn.functional.interpolate(self.photograph, (28, 28), mode="bicubic", antialias=True)
        return x[0, :1]

def ask():
    try:
        urllib.request.urlopen(page.address + "api/audit?run=model")
    except OSError:  # the server ends
        pass

page = bort.explore(bort.nets.create("lenet"), Photographs())
Photographs.passes = 5  # reading takes longer than the server waits for its requests
threading.Thread(target=ask, daemon=True).start()
time.sleep(0.2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [LEAVES, LEAVES_WHILE_IT_READS], ids=["computes", "reads"])
def test_a_program_ends_while_it_works(tmp_path, program):
    environment = os.environ | {"BORT_DATA": str(tmp_path)}  # where it keeps what it knows of the images
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_test_images_are_not_read_once_it_is_closed(client_of):
    explorer = Explorer(of_models(nets.create("lenet"), torch.rand(8, 1, 28, 28)), examples=1)
    explorer.close()
    answer = client_of(explorer).get("/api/predict?run=model&image=test-5")
    assert (answer.status_code, answer.json()["message"]) == (503, "The explorer has been closed.")


def test_a_notebook_shows_it_in_a_frame(page):
    source = re.search(r'<iframe src="([^"]+)"', page._repr_html_())[1]
    assert source == page.address
    answer, _ = get(page, "/")
    assert "frame-ancestors http://localhost:* http://127.0.0.1:*" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Frame-Options"] is None
    # What a browser sends for a frame in Jupyter's page, which another server of this machine serves.
    frame = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    assert get(page, "/", **frame)[0].status == 200
    assert get(page, "/api/info", **{"Sec-Fetch-Site": "cross-site"})[0].status == 403


def test_a_model_that_does_not_fit_its_images_starts_no_server():
    with pytest.raises(ValueError, match="model fails on an image of 3×5×5"):
        bort.explore(nets.create("lenet"), torch.rand(1, 3, 5, 5))
