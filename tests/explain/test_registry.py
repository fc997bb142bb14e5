"""Methods by name: the package's own, a program's, and those that other packages bring as entry points."""

import sys

import pytest
import torch

from bort import explain, measure


@pytest.fixture(autouse=True)
def _own_registry():
    with explain.local_registry():
        yield


def brightness(model, x, target=None, *, colour="all", progress=None):
    return x.sum(dim=1)


OWN = ["cam", "guided-ig", "ig", "rise", "sat", "xrai"]


def test_the_packages_own():
    assert explain.names()[: len(OWN)] == OWN
    assert [name for name in OWN if explain.get(name).slow] == ["guided-ig", "rise", "xrai"]
    assert explain.options("cam") == ["layer"]
    assert explain.get("guided-ig").options == ("steps", "fraction", "distance", "baseline", "progress")
    with pytest.raises(ValueError, match="no method is called 'rize'; there are rise"):
        explain.get("rize")


def test_what_methods_are_called_on_pages():
    assert explain.get("sat").label == "SAT, the paper's method"
    assert {name for name in OWN if explain.get(name).signed} == {"ig", "guided-ig"}
    explain.register("brightness", brightness)
    assert (explain.get("brightness").label, explain.get("brightness").signed) == ("brightness", False)
    explain.register("glow", brightness, title="Glow in the dark", signed=True)
    assert (explain.get("glow").label, explain.get("glow").signed) == ("Glow in the dark", True)
    explain.register("copy", explain.get("glow"), slow=True)
    assert explain.get("copy") == explain.Method("copy", brightness, True, "Glow in the dark", True)


def test_a_method_is_called_as_its_function(net, x):
    cam = explain.get("cam")
    assert (cam.name, cam.function) == ("cam", explain.cam)
    torch.testing.assert_close(cam(net, x, 2, layer="conv5"), explain.cam(net, x, 2, layer="conv5"))


def test_registering(x):
    explain.register("brightness", brightness, slow=True)
    method = explain.get("brightness")
    assert method == explain.Method("brightness", brightness, slow=True)
    assert method.options == ("colour", "progress")
    assert explain.names()[-1] == "brightness"
    assert torch.equal(method(None, x), x.sum(dim=1))
    with pytest.raises(ValueError, match="a method called 'brightness' is there already"):
        explain.register("brightness", brightness)
    with pytest.raises(TypeError, match="'mine' must be a function"):
        explain.register("mine", "brightness")
    with explain.local_registry():
        assert "brightness" not in explain.names()
    assert "brightness" in explain.names()


def adjustable(model, x, target=None, *, steps=8, part=0.5, signed=False, colour="all", layer=None):
    return x.sum(dim=1)


def test_options_that_a_person_may_set():
    ranges = {"steps": (1, 20), "part": (0, 1), "signed": (False, True)}
    explain.register("adjustable", adjustable, ranges=ranges)
    settings = explain.get("adjustable").settings
    assert {name: setting.kind for name, setting in settings.items()} == {
        "steps": "integer",
        "part": "number",
        "signed": "boolean",
    }
    assert [setting.default for setting in settings.values()] == [8, 0.5, False]
    assert (settings["steps"].read("20"), settings["part"].read("0.25"), settings["signed"].read("1")) == (
        20,
        0.25,
        True,
    )
    for name, text in (
        ("steps", "21"),
        ("steps", "2.5"),
        ("part", "nan"),
        ("part", "x"),
        ("signed", "2"),
        ("steps", ""),
    ):
        with pytest.raises(ValueError, match=f"{name}={text}: must be .*from"):
            settings[name].read(text)
    again = explain.Method("other", explain.get("adjustable").function, ranges={"steps": (2, 9)})
    explain.register("again", again)
    assert explain.get("again").settings["steps"].most == 9
    for wrong in ({"colour": (0, 1)}, {"layer": (0, 1)}, {"nothing": (0, 1)}, {"steps": (9, 20)}):
        with pytest.raises(ValueError, match="must be of an option whose default is a number in it"):
            explain.register("wrong", adjustable, ranges=wrong)
    assert "wrong" not in explain.names()


def test_the_ranges_of_the_packages_own_hold_their_defaults():
    assert {name for name in OWN if explain.get(name).settings} == {"guided-ig", "ig", "rise", "xrai"}


def install(folder, *, entry_points, module="", name="methods_of_others"):
    """A distribution on the path, as pip leaves it: a module, and metadata with entry points."""
    (folder / f"{name}.py").write_text(module)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bort.methods]\n" + "\n".join(entry_points) + "\n")


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("methods_of_others", None)


MODULE = """
from bort.explain import Method

def plain(model, x, target=None, *, colour=0):
    return x[:, colour]

slow = Method("another name", plain, slow=True)
not_a_function = 3
"""


def test_methods_of_other_packages(path, net, x):
    """Both forms appear, and are evaluated as the package's own."""
    entry_points = ["their-plain = methods_of_others:plain", "their-slow = methods_of_others:slow"]
    install(path, entry_points=entry_points, module=MODULE)
    assert {"their-plain", "their-slow"} <= set(explain.names())
    plain, slow = explain.get("their-plain"), explain.get("their-slow")
    assert (plain.name, plain.slow, plain.options) == ("their-plain", False, ("colour",))
    assert (slow.name, slow.slow, slow.options) == ("their-slow", True, ("colour",))
    evaluations = measure.evaluate(net, x, ["their-plain", "their-slow"], options={"their-slow": {"colour": -1}})
    for evaluation in evaluations.values():
        assert torch.equal(evaluation.maps, x[:, 0])
        assert evaluation.scores["relative"].deletion.shape == (3,)


def test_a_package_that_fails_is_named_and_left_out(path):
    entry_points = [
        "works = methods_of_others:plain",
        "absent = methods_of_others:absent",
        "cam = methods_of_others:plain",
    ]
    install(path, entry_points=[*entry_points, "three = methods_of_others:not_a_function"], module=MODULE)
    with pytest.warns(RuntimeWarning) as warnings:
        names = explain.names()
    assert names[: len(OWN)] == OWN
    assert "works" in names
    assert not {"absent", "three"} & set(names)
    assert explain.get("cam").function is explain.cam
    messages = sorted(str(warning.message) for warning in warnings)
    assert [message.split(" is left out")[0] for message in messages] == [
        "the saliency method 'absent' of methods_of_others",
        "the saliency method 'cam' of methods_of_others",
        "the saliency method 'three' of methods_of_others",
    ]
    assert "a method called 'cam' is there already" in messages[1]
    assert "must be a function" in messages[2]
    assert explain.names() == names, "looked up once, and warned of once"


def test_a_package_that_does_not_import(path):
    install(path, entry_points=["broken = methods_of_others:plain"], module="import a_package_that_is_not_there")
    with pytest.warns(
        RuntimeWarning, match="'broken' of methods_of_others is left out: .*No module named 'a_package_that"
    ):
        assert "broken" not in explain.names()
