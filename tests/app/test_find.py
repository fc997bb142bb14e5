"""Images found in the index, against a look at every image; and the gallery that offers any of them."""

import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from bort import invert
from bort.app import Explorer
from bort.app._exceptions import Unknown
from bort.app._find import PAGE, Finder, Question
from bort.app._gallery import Gallery, GalleryImage
from bort.subject import of_models, resolve_all
from tests.app.pages import pixels
from tests.subject.small import network, write_images

OTHER = "<b>&$\\alpha$"


@pytest.fixture(scope="module")
def explorer(runs):
    """Two runs that are often wrong, and seldom say the same."""
    explorer = Explorer(resolve_all(runs), examples=6)
    explorer.index.start()
    assert explorer.index.wait(60)
    return explorer


@pytest.fixture(scope="module")
def rows(explorer):
    """Of every image: its number, its class, and for each run the class that it says, its probability, that of the true class
    and the correlation; image by image."""
    table = []
    for number in range(explorer.index.count):
        name = f"test-{number}"
        label = explorer.gallery[name].label
        runs = []
        for run in explorer.subjects:
            x = explorer.image(run, name)
            probabilities = explorer.subjects[run].model(x).softmax(dim=1)[0].detach()
            correlation = invert.correlation(invert.reconstruct(explorer.subjects[run].model, x, "conv5"), x).item()
            said = str(int(probabilities.argmax()))
            runs.append((said, float(probabilities.max()), float(probabilities[int(label)]), correlation))
        table.append((number, label, runs))
    return table


def numbers(explorer, **question):
    found, page = [], 0
    while True:
        answer = Finder(explorer).find(Question(**question, page=page))
        found += [int(image["name"].removeprefix("test-")) for image in answer["images"]]
        page += 1
        if page >= answer["pages"]:
            assert len(found) == answer["matches"]
            return found


def test_the_fixture_has_something_to_find(rows):
    wrong = [any(said != label for said, *_ in runs) for _, label, runs in rows]
    differ = [runs[0][0] != runs[1][0] for _, _, runs in rows]
    assert 0 < sum(wrong) < 50
    assert 0 < sum(differ) < 50


def test_filters(explorer, rows):
    assert numbers(explorer) == list(range(50))
    for label in ("3", "7"):
        assert numbers(explorer, label=label) == [n for n, own, _ in rows if own == label]
    said = rows[0][2][1][0]
    assert numbers(explorer, said=said) == [n for n, _, runs in rows if said in [r[0] for r in runs]]
    for wrong, expected in {
        "any": lambda label, runs: any(r[0] != label for r in runs),
        "all": lambda label, runs: all(r[0] != label for r in runs),
        "0": lambda label, runs: runs[0][0] != label,
        "1": lambda label, runs: runs[1][0] != label,
        "9": lambda label, runs: False,
    }.items():
        assert numbers(explorer, wrong=wrong) == [n for n, label, runs in rows if expected(label, runs)], wrong
    disagreeing = [n for n, _, runs in rows if runs[0][0] != runs[1][0]]
    assert numbers(explorer, disagree=True) == disagreeing
    both = [n for n in disagreeing if rows[n][1] == "3"]
    assert numbers(explorer, disagree=True, label="3") == both
    assert numbers(explorer, label="no such class") == []


@pytest.mark.parametrize(
    ("question", "key"),
    [
        ({"order": "confidence"}, lambda runs: -abs(runs[0][2] - runs[1][2])),
        ({"order": "correlation"}, lambda runs: -abs(runs[0][3] - runs[1][3])),
        ({"order": "sure"}, lambda runs: -(runs[0][1] + runs[1][1])),
        ({"order": "unsure"}, lambda runs: runs[0][1] + runs[1][1]),
        ({"order": "sure", "wrong": "1"}, lambda runs: -runs[1][1]),
    ],
)
def test_orders(explorer, rows, question, key):
    found = numbers(explorer, **question)
    keys = [key(rows[number][2]) for number in found]
    assert keys == pytest.approx(sorted(keys), abs=2e-3)
    assert len(set(found)) == len(found)


def test_what_is_said_of_each(explorer, rows):
    for image in Finder(explorer).find(Question())["images"]:
        _, label, runs = rows[int(image["name"].removeprefix("test-"))]
        assert image["label"] == label
        for one, (said, probability, _, correlation) in zip(image["runs"], runs, strict=True):
            assert (one["said"], one["right"]) == (said, said == label)
            assert one["probability"] == pytest.approx(probability, abs=1e-4)
            assert one["correlation"] == pytest.approx(correlation, abs=1e-3)


def test_a_page_of_thumbnails(client, explorer):
    answer = client.get("/api/find", params={"order": "unsure"}).json()
    assert (answer["state"], answer["count"], answer["pages"], len(answer["images"])) == ("done", 50, 2, PAGE)
    sheet, columns = pixels(answer["sheet"]), answer["columns"]
    for number in (0, 17, PAGE - 1):
        row, column = divmod(number, columns)
        own = explorer.input(answer["images"][number]["name"])
        assert np.array_equal(sheet[28 * row : 28 * row + 28, 28 * column : 28 * column + 28], own)
    last = client.get("/api/find", params={"order": "unsure", "page": 99}).json()
    assert (last["page"], len(last["images"])) == (1, 2), "the last page in the place of one behind it"
    assert answer["labels"] == [str(n) for n in range(10)]
    nobody = client.get("/api/find", params={"wrong": "7", "order": "sure"})
    assert (nobody.status_code, nobody.json()["matches"]) == (200, 0)
    for bad in ({"wrong": "nobody"}, {"order": "random"}, {"page": -1}):
        assert client.get("/api/find", params=bad).status_code == 422


def test_a_page_to_take_away(client, rows):
    view = {"view": "find", "find_wrong": "1", "find_order": "sure"}
    with zipfile.ZipFile(io.BytesIO(client.get("/api/export.zip", params=view).content)) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        names = archive.namelist()
    own = manifest["runs"][1]
    wrong = [n for n, label, runs in rows if runs[1][0] != label]
    assert {image["name"] for image in own["images"]} <= {f"test-{n}" for n in wrong}
    assert own["matches"] == len(wrong)
    assert all(image["right"] is False for image in own["images"])
    assert f"2-b-alpha/{own['images'][0]['name']}.png" in names
    assert manifest["address"] == "?view=find&find_wrong=1&find_order=sure"
    page = client.get("/api/export.html", params=view).text
    assert page.count("<figure>") == 2 * min(PAGE, len(wrong))
    assert ", wrong" in page


# --- other subjects


def found_in(client):
    answer = client.get("/api/find").json()
    while answer["state"] == "running":
        answer = client.get("/api/find").json()
    return answer


def test_one_network_and_images_without_classes(client_of, tmp_path):
    write_images(tmp_path, [f"{n}.png" for n in range(5)])
    subjects = of_models(network(), tmp_path, size=8, mean=(0.5,) * 3, std=(0.25,) * 3)
    answer = found_in(client_of(Explorer(subjects)))
    assert answer["labels"] == []
    assert {image["label"] for image in answer["images"]} == {""}
    assert {image["runs"][0]["right"] for image in answer["images"]} == {None}
    assert len(answer["images"]) == 5


def test_three_networks_with_other_classes(client_of):
    """The same animals, counted differently, and a network that knows others."""
    x, labels = torch.rand(20, 3, 8, 8), torch.arange(20) % 5
    names = [
        ("cat", "dog", "cow", "pig", "ant"),
        ("dog", "cat", "cow", "pig", "ant"),
        ("car", "bus", "van", "tram", "bike"),
    ]
    swapped = torch.tensor([1, 0, 2, 3, 4])[labels]
    subjects = []
    for number, (classes, own) in enumerate(zip(names, (labels, swapped, torch.full((20,), -1)), strict=True)):
        torch.manual_seed(0)
        model = network()
        if number == 1:  # the same network with its first two classes exchanged
            with torch.no_grad():
                for part in (model[-1].weight, model[-1].bias):
                    part[[0, 1]] = part[[1, 0]].clone()
        (subject,) = of_models({f"net{number}": model}, x, labels=own, classes=classes, mean=(0.5,) * 3, std=(0.5,) * 3)
        subjects.append(subject)
    answer = found_in(client_of(Explorer(subjects)))
    for image in answer["images"]:
        one, two, three = image["runs"]
        assert one["said"] == two["said"], "by name"
        assert one["right"] is two["right"]
        assert three["right"] is None
    assert set(answer["labels"]) <= set(names[0])
    pair = Explorer(subjects[:2])
    assert found_in(client_of(pair))["matches"] == 20
    assert Finder(pair).find(Question(disagree=True))["matches"] == 0
    assert Finder(pair).find(Question(wrong="any"))["matches"] == Finder(pair).find(Question(wrong="all"))["matches"]


def test_photographs_come_as_jpeg(client_of):
    (subject,) = of_models(network(), torch.rand(3, 3, 120, 120), mean=(0.5,) * 3, std=(0.5,) * 3)
    answer = found_in(client_of(Explorer([subject])))
    assert answer["sheet"].startswith("data:image/jpeg")
    assert pixels(answer["sheet"]).shape == (96, 3 * 96, 3)


def test_no_images_at_all(client_of, subjects):
    client = client_of(Explorer([replace(subject, examples=None) for subject in subjects]))
    answer = found_in(client)
    assert (answer["count"], answer["matches"], answer["images"]) == (0, 0, [])
    missing = client.get("/api/image", params={"image": "test-0"})
    assert (missing.status_code, "there are no test images" in missing.json()["message"]) == (404, True)


# --- any test image by its name


def test_any_test_image_can_be_opened_before_the_index_is_there(client_of, runs):
    explorer = Explorer(resolve_all(runs), examples=3)
    client = client_of(explorer)
    assert len(client.get("/api/info").json()["images"]) == 3
    about = client.get("/api/image", params={"image": "test-17"}).json()
    assert about["label"] == str(int(explorer.measured("plain").read([17])[1]))
    here = {"run": "plain", "image": "test-17", "layer": "conv5"}
    assert client.get("/api/reconstruct", params=here).status_code == 200
    assert explorer.index.state == "waiting"
    for name in ("test-50", "test-017", "test--1", "test-1 ", "upload-0"):
        assert client.get("/api/image", params={"image": name}).status_code == 404


def test_images_that_were_opened_take_a_bounded_memory():
    read = []

    def image(name):
        if name == "gone":
            raise Unknown("gone")
        read.append(name)
        return GalleryImage(name, {})

    gallery = Gallery(image, sent=2, kept=3)
    gallery.offer(GalleryImage("test-0", {}))
    for name in ("test-1", "test-2", "test-1", "test-3", "test-4", "test-1", "test-2", "test-0"):
        assert gallery[name].name == name
    assert read == ["test-1", "test-2", "test-3", "test-4", "test-2"], "the one used longest ago is dropped"
    for name in ("upload-1", "upload-2", "upload-1", "upload-3"):
        gallery.send(GalleryImage(name, {}))
    assert [each.name for each in gallery.list()] == ["test-0", "upload-1", "upload-3"]
    with pytest.raises(Unknown):
        gallery["gone"]
