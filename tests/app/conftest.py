import re
import threading
import time

import pytest
import uvicorn
from fastapi.testclient import TestClient

from bort.app._explorer import Explorer
from bort.app._access import Guard
from bort.app._listen import hosts, listen
from bort.app._server import create
from tests.app.pages import BASE
from tests.pages import _networks, network

__all__ = ["_networks"]


@pytest.fixture(scope="module")
def explorer(runs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bort.train._run.build", network)
        return Explorer(runs, examples=6)


@pytest.fixture
def client(explorer):
    with TestClient(create(explorer, Guard(("localhost:8765",))), base_url=BASE, raise_server_exceptions=False) as made:
        yield made


@pytest.fixture(scope="module")
def server(explorer):
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    app = create(explorer, Guard(hosts("127.0.0.1", port)))
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.02)
    yield f"http://localhost:{port}/"
    running.should_exit = True
    thread.join(timeout=10)


@pytest.fixture
def tab(browser, server, request):
    """A page whose console stays empty and whose requests stay on this machine."""
    options = {"viewport": {"width": 1440, "height": 900}} | getattr(request, "param", {})
    context = browser.new_context(**options)
    made = context.new_page()
    said, asked = [], []
    made.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: said.append(str(error)))
    made.on("request", lambda each: asked.append(each.url))
    yield made
    # Browsers write every refusal to the console; what the page makes of one is tested where it is meant.
    assert [line for line in said if not re.search(r"status of 4(00|04|13)|net::ERR_FAILED", line)] == []
    assert all(url.startswith((server, "data:", "blob:")) for url in asked), "no request beyond loopback"
    context.close()
