"""A release that installs: what is in the wheel, and what works with torch alone, with each extra, and with all of them."""

import re
import tarfile
import zipfile

import pytest

import bort
from tests.release.conftest import ROOT

pytestmark = pytest.mark.slow


def test_the_wheel_has_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = next(wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA"))
    source = ROOT / "src"
    kinds = (".py", ".css", ".html", ".js", ".typed")
    assert names == {str(file.relative_to(source)) for file in (source / "bort").rglob("*") if file.suffix in kinds}
    for file in ("bort/py.typed", "bort/app/page/index.html", "bort/app/page/app.css", "bort/report/page.css"):
        assert file in names
    assert f"\nVersion: {bort.__version__}\n" in metadata
    needs = re.findall(r"^Requires-Dist: ([\w.-]+)", re.sub(r".*extra ==.*\n", "", metadata), flags=re.MULTILINE)
    assert needs == ["torch"]


def test_the_source_distribution_has_what_the_tests_need(built):
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for name in ("CHANGELOG.md", "CITATION.cff", "LICENSE", "Makefile", "README.md", "SECURITY.md", "constraints.txt"):
        assert name in names
    for folder in ("benchmarks", "docs", "examples", "results", "src/bort", "tests"):
        assert any(name.startswith(f"{folder}/") for name in names)
    assert not [name for name in names if re.search(r"(^|/)(\.venv|site|runs|build|__pycache__)(/|$)", name)]


OPTIMIZERS = """
import sys, warnings
warnings.simplefilter("ignore")  # torch says that there is no numpy
import torch
import bort
assert bort.__file__.startswith(sys.prefix), bort.__file__
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
for optimizer in (bort.BortS(model, lr=0.1), bort.BortA(model, lr=0.1), bort.BortL(model, lr=0.1)):
    before = model[0].weight.detach().clone()
    model(torch.ones(4, 8)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model[0].weight, before)
    assert all(0 <= residual < 100 for residual in optimizer.residuals().values())
print(bort.__version__, bort.monitor.measure(optimizer)["bort/sigma_largest"] > 0)
try:
    bort.audit
except ImportError as error:
    print(error)
"""


def test_torch_alone_is_enough_for_the_optimizers(installed, tmp_path):
    result = installed("").run("python", "-c", OPTIMIZERS, cwd=tmp_path)
    assert result.stdout.splitlines() == [
        f"{bort.__version__} True",
        'bort.audit needs numpy: pip install "bort[vision]"',
    ], result.stderr


def test_the_version_needs_no_extra(installed, tmp_path):
    assert installed("").run("bort", "--version", cwd=tmp_path).stdout == f"bort {bort.__version__}\n"
    assert installed("").run("python", "-m", "bort", "--version", cwd=tmp_path).stdout == f"bort {bort.__version__}\n"


@pytest.mark.parametrize(
    ("extra", "command", "missing"),
    [
        ("", "demo", "vision"),
        ("vision", "explain timm/resnet18 IMAGE --method ig", "explain"),
        ("explain", "serve lenet", "app"),
    ],
)
def test_a_missing_extra_is_named(installed, tmp_path, extra, command, missing):
    image = ROOT / "docs" / "pictures" / "ratio.png"
    arguments = [str(image) if word == "IMAGE" else word for word in command.split()]
    result = installed(extra).run("bort", *arguments, cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    assert f'pip install "bort[{missing}]"' in result.stderr
    assert "Traceback" not in result.stderr


def test_the_demo_from_the_wheel(installed, tmp_path):
    result = installed("explain").run("bort", "demo", "--epochs", "1", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert {path.name for path in (tmp_path / "runs" / "demo").iterdir()} >= {"SGD", "Bort-S", "report.html"}


SERVER = """
import bort, torch
page = bort.explore(bort.nets.create("lenet"), torch.rand(4, 1, 28, 28))
import urllib.request
print(urllib.request.urlopen(page.address).status, urllib.request.urlopen(page.address + "app.js").status)
page.close()
"""


def test_the_explorer_from_the_wheel(installed, tmp_path):
    """With the page's own files."""
    result = installed("app").run("python", "-c", SERVER, cwd=tmp_path)
    assert result.stdout.split() == ["200", "200"], result.stderr
