"""Drawings: placed as MNIST's digits are, and what the networks say of them."""

import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.Image import Resampling
from torch import nn

from bort import invert, nets
from bort.app import Explorer
from bort.app._centre import centred, resized
from bort.data import View, load
from bort.pictures import picture, signal
from bort.subject import Subject
from tests.app.pages import pixels


@pytest.fixture(scope="module")
def digits():
    data = load("mnist5k")
    return data.test_images[:, 0].float().numpy() / 255, data.test_labels


@pytest.fixture(scope="module")
def classifier():
    """Least squares on the training digits: right for more than four of five, and only where a digit stands as in MNIST."""
    data = load("mnist5k")
    x = data.train_images.flatten(1).double() / 255
    x = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], dim=1)
    weights = torch.linalg.solve(x.T @ x + 10 * torch.eye(785), x.T @ nn.functional.one_hot(data.train_labels).double())

    def accuracy(images, labels):
        seen = torch.tensor(np.stack(images)).flatten(1).double()
        said = (seen @ weights[:-1] + weights[-1]).argmax(dim=1)
        return (said == labels).float().mean().item()

    return accuracy


def test_digits_stay_where_they_are(digits):
    again = np.stack([centred(image, 28, 28) for image in digits[0]])
    moved = np.abs(again - digits[0]).max(axis=(1, 2)) > 0.1
    assert moved.mean() < 0.02, "MNIST's own digits are placed so already"


@pytest.mark.parametrize("size", [70, 120, 200])
def test_drawn_anywhere_and_at_any_size_a_digit_is_read_again(digits, classifier, size):
    images, labels = digits[0][:300], digits[1][:300]
    generator = np.random.default_rng(0)
    drawings = []
    for image in images:
        rows, columns = (np.flatnonzero(image.any(axis=axis)) for axis in (1, 0))
        ink = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        sides = [max(1, round(size * side / 28)) for side in ink.shape]
        larger = np.asarray(Image.fromarray(ink).resize(sides[::-1], Resampling.BICUBIC)).clip(0, 1)
        canvas = np.zeros((224, 224), np.float32)
        top, left = (generator.integers(0, 225 - side) for side in sides)
        canvas[top : top + sides[0], left : left + sides[1]] = larger
        drawings.append(canvas)
    expected = classifier(images, labels)
    assert expected > 0.8
    assert classifier([resized(drawing, 28, 28) for drawing in drawings], labels) < expected - 0.25
    assert classifier([centred(drawing, 28, 28) for drawing in drawings], labels) > expected - 0.04


def test_the_box_and_the_centre_of_mass():
    ink = np.zeros((224, 224), np.float32)
    ink[10:50, 100:120] = 1  # twice as high as wide
    field = centred(ink, 28, 28)
    rows, columns = (np.flatnonzero(field.any(axis=axis)) for axis in (1, 0))
    assert (len(rows), len(columns)) == (20, 10), "20 pixels high, with its ratio"
    centre = [(field.sum(axis=axis) * np.arange(28)).sum() / field.sum() for axis in (1, 0)]
    assert centre == pytest.approx([14, 14], abs=0.5), "as near as whole pixels allow"
    assert field.max() == 1
    wide = centred(ink.T, 32, 40)
    rows, columns = (np.flatnonzero(wide.any(axis=axis)) for axis in (1, 0))
    assert (len(rows), len(columns)) == (14, 29), "of other fields 20/28"


def test_a_heavy_end_stays_inside_the_field():
    ink = np.zeros((224, 224), np.float32)
    ink[20:200, 20:22] = 0.1
    ink[190:200, 10:200] = 1
    field = centred(ink, 28, 28)
    assert np.flatnonzero(field.any(axis=1))[-1] <= 27
    assert field.sum() == pytest.approx(resized(ink[20:200, 10:200], 19, 20).sum(), rel=0.15), "nothing is cut off"


def test_nothing_and_a_single_point():
    assert centred(np.zeros((224, 224), np.float32), 28, 28).sum() == 0
    point = np.zeros((224, 224), np.float32)
    point[3, 200] = 1
    assert centred(point, 28, 28).sum() > 0


# --- what the explorer says of them


@pytest.fixture
def canvas(explorer):
    """A cross, drawn off the middle."""
    ink = np.zeros((224, 224), np.uint8)
    ink[20:120, 60:80] = ink[60:80, 20:120] = 255
    return ink


def test_what_the_networks_say(client, explorer, canvas):
    answer = client.post("/api/draw", params={"layer": "conv3"}, content=canvas.tobytes()).json()
    assert [run["run"] for run in answer["runs"]] == list(explorer.subjects)
    field = centred(canvas.astype(np.float32) / 255, 28, 28)
    seen = np.round(field * 255).astype(np.uint8)
    assert np.array_equal(pixels(answer["picture"])[..., 0], seen)
    for run in answer["runs"]:
        subject = explorer.subjects[run["run"]]
        x = subject.view(Image.fromarray(seen))
        probabilities = subject.model(x).softmax(dim=1)[0]
        assert [one["class"] for one in run["classes"]] == probabilities.argsort(descending=True).tolist()
        assert run["classes"][0]["probability"] == pytest.approx(probabilities.max().item(), abs=1e-5)
        back = invert.reconstruct(subject.model, x, "conv3")
        assert np.array_equal(pixels(run["picture"]), signal(back[0]))
        assert run["correlation"] == pytest.approx(invert.correlation(back, x).item(), abs=1e-5)


def test_as_it_is_drawn(client, explorer, canvas):
    answer = client.post("/api/draw", params={"centre": 0}, content=canvas.tobytes()).json()
    expected = canvas.reshape(28, 8, 28, 8).mean(axis=(1, 3)).round()
    assert np.abs(pixels(answer["picture"])[..., 0] - expected).max() <= 1
    assert answer["runs"][0]["layer"] == "conv5", "the top one where none is named"


def test_kept_drawings_have_names(client, explorer, canvas):
    first = client.post("/api/draw", params={"keep": 1}, content=canvas.tobytes()).json()["drawing"]
    assert client.post("/api/draw", params={"keep": 1}, content=canvas.tobytes()).json()["drawing"] == first
    assert client.post("/api/draw", content=canvas.tobytes()).json()["drawing"] == ""
    assert np.array_equal(pixels(client.get("/api/drawing.png", params={"drawing": first}).content)[..., 0], canvas)
    image = client.post("/api/drawing", params={"drawing": first}).json()["image"]
    raw = client.post("/api/drawing", params={"drawing": first, "centre": 0}).json()["image"]
    assert image != raw
    names = [each["name"] for each in client.get("/api/info").json()["images"]]
    assert names[-2:] == [image, raw], "as if they had been sent"
    assert np.array_equal(
        explorer.input(image), picture(torch.tensor(centred(canvas.astype(np.float32) / 255, 28, 28))[None])
    )
    assert client.get("/api/predict", params={"run": "plain", "image": raw}).status_code == 200
    assert client.get("/api/drawing.png", params={"drawing": "drawing-0"}).status_code == 404
    assert "Nothing is drawn" in client.get("/api/export.zip", params={"view": "draw"}).json()["message"]
    for level in range(64):
        client.post("/api/draw", params={"keep": 1}, content=bytes([level]) * 224 * 224)
    gone = client.get("/api/drawing.png", params={"drawing": first})
    assert (gone.status_code, "draw it again" in gone.json()["message"]) == (404, True)


def test_a_body_of_another_size(client):
    for content, status, words in (
        (b"", 400, "0 bytes"),
        (b"1" * 100, 400, "224 × 224"),
        (b"1" * 300_000, 413, "larger"),
    ):
        answer = client.post("/api/draw", content=content)
        assert (answer.status_code, words in answer.json()["message"]) == (status, True)


def test_dark_ink_for_networks_on_bright_paper(subjects):
    """Polarity is the examples', whatever the data set is called."""
    (plain, _) = subjects
    bright = torch.ones(8, 1, 28, 28)
    bright[:, :, 10:18, 10:18] = 0
    explorer = Explorer([replace(plain, examples=lambda count: (plain.view.normalised(bright), torch.arange(8)))])
    assert explorer.drawings.canvas["paper"] == "bright"
    ink = np.zeros((224, 224), np.uint8)
    ink[80:144, 80:144] = 255
    seen = explorer.drawings.seen(ink.tobytes(), centre=False)
    assert (seen[0, 0, 0], seen[14, 14, 0]) == (255, 0)


@pytest.mark.parametrize(
    ("view", "words"),
    [(View(16, 3, (0.5,) * 3, (0.5,) * 3), "mine takes 3 × 16 × 16"), (View(65, 1, (0.5,), (0.5,)), "1 × 65 × 65")],
)
def test_networks_on_other_images_say_why_not(client_of, view, words):
    model = nn.Sequential(nn.Conv2d(view.channels, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    client = client_of(Explorer([Subject("mine", model, view)]))
    info = client.get("/api/info").json()
    assert info["drawing"] is None
    assert words in info["no_drawing"]
    answer = client.post("/api/draw", content=b"0" * 100)
    assert (answer.status_code, answer.json()["message"]) == (400, info["no_drawing"])


def test_a_network_without_images_can_be_drawn_for(client_of):
    torch.manual_seed(0)
    view = View((20, 30), 1, (0.5,), (0.5,), tuple("abc"))
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
    client = client_of(Explorer([Subject("mine", model, view)]))
    info = client.get("/api/info").json()
    assert info["drawing"] == {"rows": 20, "columns": 30, "scale": 7, "paper": "dark"}
    ink = np.zeros((140, 210), np.uint8)
    ink[30:90, 30:60] = 255
    answer = client.post("/api/draw", content=ink.tobytes()).json()
    assert pixels(answer["picture"]).shape == (20, 30, 3)
    assert {one["name"] for one in answer["runs"][0]["classes"]} == set("abc")


def test_runs_with_inputs_of_different_sizes(client_of):
    torch.manual_seed(0)
    subjects = [
        Subject(f"{side}", nets.create("lenet", image_size=side), View(side, 1, (0.1,), (0.3,))) for side in (28, 32)
    ]
    explorer = Explorer(subjects)
    ink = np.zeros((224, 224), np.uint8)
    ink[40:180, 100:120] = 255
    inputs = explorer.drawings.inputs(ink.tobytes(), centre=True)
    assert [x.shape for x in inputs.values()] == [(1, 1, 28, 28), (1, 1, 32, 32)]
    assert client_of(explorer).post("/api/draw", content=ink.tobytes()).status_code == 200


def test_a_drawing_to_take_away(client, explorer, canvas):
    name = client.post("/api/draw", params={"keep": 1}, content=canvas.tobytes()).json()["drawing"]
    view = {"view": "draw", "drawing": name, "layer": "conv4", "centre": 0}
    with zipfile.ZipFile(io.BytesIO(client.get("/api/export.zip", params=view).content)) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert {f"1-plain/{file}" for file in ("drawing.png", "input.png", "reconstruction.png")} <= set(
            archive.namelist()
        )
        back = np.load(io.BytesIO(archive.read("2-b-alpha/reconstruction.npy")))
    x = explorer.drawings.inputs(canvas.tobytes(), centre=False)["<b>&$\\alpha$"]
    assert np.array_equal(back, invert.reconstruct(explorer.subjects["<b>&$\\alpha$"].model, x, "conv4")[0].numpy())
    assert manifest["runs"][0]["layer"] == "conv4"
    assert len(manifest["runs"][0]["says"]) == 5
    assert f"drawing={name}" in manifest["address"]
    page = client.get("/api/export.html", params=view).text
    assert page.count("<figure>") == 6
