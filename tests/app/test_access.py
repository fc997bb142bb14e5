"""Who may ask, and what they are told."""

from fastapi.testclient import TestClient

from bort.app._access import Guard
from bort.app._server import create
from tests.app.pages import BASE


def test_who_may_ask(explorer):
    with TestClient(create(explorer, Guard(("localhost:8765",))), base_url=BASE) as client:
        assert client.get("/api/info", headers={"host": "evil.example"}).status_code == 403
        assert client.get("/api/info", headers={"origin": "http://evil.example"}).status_code == 403
        assert client.get("/api/info", headers={"origin": "null"}).status_code == 403
        good = client.get("/", headers={"origin": BASE})
        assert good.status_code == 200
        policy = good.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert good.headers["x-content-type-options"] == "nosniff"
        assert client.get("/..%2f..%2fetc/passwd").status_code == 404
        assert client.get("/api/info", headers={"sec-fetch-site": "cross-site"}).status_code == 403
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert client.get("/", headers=link).status_code == 200, "a link from elsewhere may lead here"
        assert client.get("/api/info", headers=link).status_code == 403


def test_what_nobody_foresaw_is_a_message_too(explorer, monkeypatch):
    monkeypatch.setattr(explorer, "info", lambda: 1 / 0)
    with TestClient(create(explorer, Guard(("localhost:8765",))), base_url=BASE) as client:
        answer = client.get("/api/info")
    assert (answer.status_code, answer.json()) == (500, {"message": "division by zero"})
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_token_where_others_could_reach_it(explorer):
    guard = Guard(("localhost:8765",), "secret")
    with TestClient(create(explorer, guard), base_url=BASE) as client:
        assert client.get("/api/info").status_code == 403
        assert client.get("/api/info?token=wrong").status_code == 403
        assert client.get("/api/info?token=schlüssel").status_code == 403
        assert client.get("/?token=secret").status_code == 200
        assert client.get("/api/info").status_code == 200, "the cookie goes on"
