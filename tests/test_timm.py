"""timm knows the Bort optimizers by name, whichever of the two is imported first."""

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


@pytest.mark.parametrize("imports", ["import bort", "import timm.optim, bort", "import bort, timm, bort"])
def test_names_are_registered_in_either_order(imports):
    result = subprocess.run([sys.executable, "-c", imports + USE], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["BortS 0.25 0.25", "BortA 0.25 0.25", "BortL 0.25 0.25"]
    assert "already registered" not in result.stderr


def test_asking_for_timm_is_not_importing_it():
    code = "import bort, importlib.util; importlib.util.find_spec('timm.optim')" + USE
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[0] == "BortS 0.25 0.25"


@pytest.mark.parametrize("stub", ["types.ModuleType('timm.optim')", "None"])
def test_a_timm_without_a_registry_or_without_optim_is_left_alone(stub):
    code = f"import sys, types; sys.modules['timm.optim'] = {stub}; import bort; print('fine')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "fine"


def test_the_watcher_steps_aside():
    code = "import sys, bort, timm.optim; print(len([f for f in sys.meta_path if 'bort' in str(type(f))]))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "0"


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


def test_timm_takes_our_groups():
    result = subprocess.run([sys.executable, "-c", GROUPS], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False", "True"]
