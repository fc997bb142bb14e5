"""Which requests are answered, and how the others are refused."""

from tests.app.pages import BASE


def test_requests_of_other_sites_are_refused(client):
    assert client.get("/api/info", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/api/info", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.get("/api/info", headers={"origin": "null"}).status_code == 403
    assert client.get("/api/info", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200, "a link from elsewhere may lead here"
    assert client.get("/api/info", headers=link).status_code == 403


def test_the_page_and_its_headers(client):
    answer = client.get("/", headers={"origin": BASE})
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_only_the_page_s_own_files(client):
    assert client.get("/..%2f..%2fetc/passwd").status_code == 404
    page = client.get("/")
    forged = client.get("/", params={"content": "<h1>forged</h1>", "media_type": "text/plain"})
    assert (forged.content, forged.headers["content-type"]) == (page.content, "text/html; charset=utf-8")


def test_an_unforeseen_error_is_a_message_too(client_of):
    class Broken:
        def info(self):
            return 1 / 0

    answer = client_of(Broken()).get("/api/info")
    assert (answer.status_code, answer.json()) == (500, {"message": "division by zero"})
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_token_where_others_could_reach_it(client_of, explorer):
    client = client_of(explorer, token="secret")
    assert client.get("/api/info").status_code == 403
    assert client.get("/api/info?token=wrong").status_code == 403
    assert client.get("/api/info?token=schlüssel").status_code == 403
    assert client.get("/?token=secret").status_code == 200
    assert client.get("/api/info").status_code == 200, "then the cookie is enough"
