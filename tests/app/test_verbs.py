"""HEAD and OPTIONS, for programs that look before they load; and wrong methods."""

import httpx
import pytest

GETS = [
    "/",
    "/app.js",
    "/openapi.json",
    "/api/info",
    "/api/strip.png",
    "/api/input.png?image=test-0",
    "/api/predict?run=plain&image=test-0",
    "/api/export.html?image=test-0",
    "/api/predict?run=nobody&image=test-0",
    "/nowhere",
]


@pytest.mark.parametrize("path", GETS)
def test_head_is_get_without_the_body(client, path):
    whole, head = client.get(path), client.head(path)
    assert head.status_code == whole.status_code
    assert head.content == b""
    assert dict(head.headers) == dict(whole.headers)
    assert int(head.headers["content-length"]) > 0


def test_head_over_a_connection(server):
    """uvicorn must be told of HEAD too, or it would wait for a body."""
    with httpx.Client(base_url=server) as client:
        for _ in range(2):
            answer = client.head("/api/info")
            assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/", "GET, HEAD, OPTIONS"), ("/api/upload", "OPTIONS, POST"), ("/api/jobs/x", "DELETE, GET, HEAD, OPTIONS")],
)
def test_what_an_address_allows(client, path, allowed):
    options = client.options(path)
    assert (options.status_code, options.content, options.headers["allow"]) == (204, b"", allowed)
    wrong = client.patch(path)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, allowed)
    assert wrong.json() == {"message": "Method Not Allowed"}


def test_others_are_guarded_as_get_is(client):
    stranger = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    for ask in (client.head, client.options):
        assert ask("/api/info", headers=stranger).status_code == 403
    assert client.head("/api/upload").status_code == 405
    assert client.options("/nowhere").status_code == 404


def test_the_description_has_neither(client):
    verbs = {verb for path in client.get("/openapi.json").json()["paths"].values() for verb in path}
    assert verbs == {"get", "post", "delete"}
