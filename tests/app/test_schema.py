"""The description at /openapi.json is true: schemathesis makes requests of it, good and bad, and holds the answers to it.

Of every answer: no server error, a status, a content type and a content that are described, good requests accepted and bad
ones refused.
"""

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig

from bort.app._access import Access
from bort.app._calculations import Calculations
from bort.app._server import create
from tests.app.pages import finished

pytestmark = pytest.mark.slow

HOST, TOKEN, JOB = "localhost:8765", "secret", "known"

# A random name is answered 404, which tells little: nine times of ten a name is one that exists.
KNOWN = {
    "run": ["plain", "<b>&$\\alpha$"],
    "image": ["test-0", "test-1"],
    "layer": ["conv1", "conv5", "head"],
    "channel": ["0.1", "1.0", "7.99999"],
    "edits": ["0:0", "1:2.5,0:-1", "*:0,1:1", "999:1", "1:x"],
    "options": ["", "steps:4", "masks:100"],
    "job": [JOB],
}


def mostly(known):
    return {"dictionary": known, "probability": 0.9}


CONFIG = {
    "seed": 0,
    "base-url": f"http://{HOST}",
    "generation": {"max-examples": 50, "deterministic": True, "no-shrink": True},
    "dictionaries": {name: {"values": values} for name, values in KNOWN.items()},
    "parameters": {f"query.{name}": mostly(name) for name in ("run", "image", "layer", "edits", "options")}
    | {f"query.{name}": mostly("image") for name in ("other",)}
    | {"query.source": mostly("image"), "query.target": mostly("image"), "path.name": mostly("job")},
    "checks": {
        # 400 is for what only a network can say: that a layer has fewer channels, that there are fewer classes.
        "positive_data_acceptance": {"expected-statuses": ["2xx", 400, 404]},
    },
}


class Nobody:
    """It takes no networks to describe what is asked of them."""


DESCRIPTION = create(Nobody(), None, object()).openapi()
API = schemathesis.openapi.from_dict(DESCRIPTION, config=SchemathesisConfig.from_dict(CONFIG))


@pytest.fixture(scope="module")
def app(explorer):
    info = explorer.info()
    assert [run["name"] for run in info["runs"]] == KNOWN["run"]
    assert {image["name"] for image in info["images"]} >= set(KNOWN["image"])
    for run in KNOWN["run"]:
        for layer in ("conv1", "conv5"):
            finished(
                explorer, run, layer
            )  # until then more images can be asked for than are known, which is answered 503
    queue = Calculations(waiting=1000, keep=1000, seconds=0)  # what is slow is begun, and ended at once
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secrets.token_urlsafe", lambda _: JOB)
        queue.start("a calculation", lambda progress: None)
    yield create(explorer, Access((HOST,), TOKEN), queue)
    queue.close()


def is_true(case, app):
    case.call_and_validate(app=app, cookies={"token-8765": TOKEN})


# A function for each operation: those that schemathesis would make of one have one name, and xdist then runs one of them.
for path, methods in DESCRIPTION["paths"].items():
    for name in methods:
        label = f"{name.upper()} {path}"
        globals()[f"test_{label}"] = API.include(name=label).parametrize()(is_true)
