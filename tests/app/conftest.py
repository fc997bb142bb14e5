import re
import threading
import time

import pytest
from fastapi.testclient import TestClient

from bort.app import Explorer
from bort.app._access import Access
from bort.app._connections import server_of
from bort.app._listen import hosts, listen
from bort.app._server import create
from bort.subject import resolve_all
from tests.app.pages import BASE


@pytest.fixture(scope="module")
def explorer(runs):
    explorer = Explorer(resolve_all(runs), examples=6)
    yield explorer
    explorer.close()


@pytest.fixture
def client_of():
    """A function: a client that asks an explorer's server. Errors are answers, as in a browser."""
    clients = []

    def make(explorer, token=None, **options):
        app = create(explorer, Access(("localhost:8765",), token), **options)
        client = TestClient(app, base_url=BASE, raise_server_exceptions=False)
        clients.append(client)
        return client.__enter__()

    yield make
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(client_of, explorer):
    return client_of(explorer)


@pytest.fixture
def here():
    """A run, an image and a layer to ask about."""
    return {"run": "plain", "image": "test-0", "layer": "conv5"}


@pytest.fixture(scope="module")
def serve():
    """A function: the address of a running server of an explorer."""
    servers = []

    def start(explorer, token=None):
        listening = listen("127.0.0.1", 0)
        port = listening.getsockname()[1]
        app = create(explorer, Access(hosts("127.0.0.1", port), token))
        server = server_of(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            time.sleep(0.02)
        return f"http://localhost:{port}/"

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(timeout=10)


@pytest.fixture(scope="module")
def server(serve, explorer):
    return serve(explorer)


@pytest.fixture
def tab(browser, server, request):
    """A page whose console stays empty and whose requests stay on this machine."""
    options = {"viewport": {"width": 1440, "height": 900}} | getattr(request, "param", {})
    context = browser.new_context(**options)
    context.add_init_script("localStorage.setItem('bort-tour', 'seen')")  # the tour has tests of its own
    page = context.new_page()
    errors, requests = [], []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    yield page
    # Browsers write every refusal to the console; how the page answers one is tested where it is meant.
    meant = "400|404|413|503" if request.node.get_closest_marker("busy") else "400|404|413"
    assert [line for line in errors if not re.search(rf"status of ({meant})|net::ERR_FAILED", line)] == []
    assert all(url.startswith(("http://localhost:", "data:", "blob:")) for url in requests), "no request leaves"
    context.close()
