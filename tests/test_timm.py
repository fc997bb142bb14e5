"""timm knows the Bort optimizers by name, whichever of the two is imported first."""

import json
import subprocess
import sys

import pytest

USE = """
import torch
from timm.optim import create_optimizer_v2
for name in ("borts", "borta", "bortl"):
    optimizer = create_optimizer_v2(torch.nn.Linear(3, 2), opt=name, lr=0.1, weight_decay=0.01, constraint=0.25)
    print(type(optimizer).__name__, *(group["constraint"] for group in optimizer.param_groups))
"""

GROUPS = """
import bort, torch, warnings
from timm.models import create_model
from timm.optim import create_optimizer_v2
with torch.device("meta"):
    model = create_model("deit_tiny_patch16_224")
warnings.simplefilter("error")
optimizer = create_optimizer_v2(model, opt="borta", lr=0.1, param_group_fn=bort.param_groups)
names = {name for name, _ in optimizer.constrained()}
print("cls_token" in names, "head.weight" in names, "blocks.0.mlp.fc1.weight" in names)
"""

WITHOUT_OPTIM = "import sys, types; sys.modules['timm.optim'] = {}; import bort; print('fine')"

PROGRAMS = {
    "bort first": "import bort" + USE,
    "timm first": "import timm.optim, bort" + USE,
    "bort twice": "import bort, timm, bort" + USE,
    "asked for": "import bort, importlib.util; importlib.util.find_spec('timm.optim')" + USE,
    "no registry": WITHOUT_OPTIM.format("types.ModuleType('timm.optim')"),
    "no optim": WITHOUT_OPTIM.format("None"),
    "watcher": "import sys, bort, timm.optim; print(len([f for f in sys.meta_path if 'bort' in str(type(f))]))",
    "groups": GROUPS,
}

# Each program has an interpreter in which neither bort nor timm has been imported, but torch has, which takes seconds.
FORKS = """
import json, os, sys, tempfile
import torch, torch._dynamo, torchvision
results = {}
for name, program in json.load(sys.stdin).items():
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            assert not {"bort", "timm"} & set(sys.modules)
            status = 1
            try:
                exec(program, {})
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        output.seek(0), errors.seek(0)
        results[name] = {"status": status, "output": output.read(), "errors": errors.read()}
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results():
    """Of every program."""
    command = [sys.executable, "-c", FORKS]
    ran = subprocess.run(command, input=json.dumps(PROGRAMS), capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


@pytest.fixture
def result(results, request):
    """Of the program that the test names."""
    own = results[request.param]
    assert own["status"] == 0, own["errors"]
    return own


@pytest.mark.parametrize("result", ["bort first", "timm first", "bort twice"], indirect=True)
def test_names_are_registered_in_either_order(result):
    assert result["output"].splitlines() == ["BortS 0.25 0.25", "BortA 0.25 0.25", "BortL 0.25 0.25"]
    assert "already registered" not in result["errors"]


@pytest.mark.parametrize("result", ["asked for"], indirect=True)
def test_asking_for_timm_is_not_importing_it(result):
    assert result["output"].splitlines()[0] == "BortS 0.25 0.25"


@pytest.mark.parametrize("result", ["no registry", "no optim"], indirect=True)
def test_a_timm_without_a_registry_or_without_optim_is_left_alone(result):
    assert result["output"].strip() == "fine"


@pytest.mark.parametrize("result", ["watcher"], indirect=True)
def test_the_watcher_steps_aside(result):
    assert result["output"].strip() == "0"


@pytest.mark.parametrize("result", ["groups"], indirect=True)
def test_timm_takes_our_groups(result):
    assert result["output"].split() == ["False", "False", "True"]
