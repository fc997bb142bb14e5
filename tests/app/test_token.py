"""Where a token is needed, a link without it opens a page that asks for it; programs get JSON."""

import pytest

from tests.app.pages import until

TOKEN = "secret-token"
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_a_person_gets_a_page_and_a_program_json(client_of, explorer):
    client = client_of(explorer, token=TOKEN)
    page = client.get("/?view=audit&image=%22%3E%3Cb%3E&token=wrong", headers=BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "That is not the token. The explorer needs its token" in page.text
    assert '<input type="hidden" name="view" value="audit">' in page.text
    assert '<input type="hidden" name="image" value="&quot;&gt;&lt;b&gt;">' in page.text
    assert "wrong" not in page.text
    assert "set-cookie" not in page.headers
    policy = page.headers["content-security-policy"]
    assert "form-action 'self'" in policy
    assert "unsafe" not in policy
    for path, headers in (("/api/info", BROWSER), ("/", {}), ("/app.js", BROWSER)):
        refused = client.get(path, headers=headers)
        assert (refused.status_code, list(refused.json())) == (403, ["message"])
    assert "That is not" not in client.get("/", headers=BROWSER).text


def test_other_refusals_have_no_field(client_of, explorer):
    page = client_of(explorer, token=TOKEN).get("/", headers=BROWSER | {"host": "<i>.example"})
    assert (page.status_code, "<form" in page.text) == (403, False)
    assert "This server is not called &#x27;&lt;i&gt;.example&#x27;" in page.text


def test_whether_others_need_a_token_is_known(client_of, explorer):
    assert client_of(explorer).get("/api/info").json()["needs_token"] is False
    assert client_of(explorer, token=TOKEN).get(f"/api/info?token={TOKEN}").json()["needs_token"] is True


@pytest.fixture(scope="module")
def closed(serve, explorer):
    """A server that needs the token."""
    return serve(explorer, TOKEN)


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_copied_link_opens_with_the_token(browser, closed, width, scheme):
    def new_tab():
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        tab = context.new_page()
        tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        return tab

    errors = []
    first = new_tab()
    first.goto(f"{closed}?view=transplant&k=3&token={TOKEN}")
    first.wait_for_selector("body[data-ready]")
    first.locator("#link").click()
    first.locator("#message", has_text="Whoever opens it is asked for the token, which is not in it.").wait_for()
    link = first.evaluate("navigator.clipboard.readText()")
    assert "view=transplant" in link
    assert TOKEN not in link
    assert errors == []

    colleague = new_tab()
    colleague.goto(link)
    assert "The explorer needs its token" in colleague.locator("main p").inner_text()
    assert colleague.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ink, paper = (
        colleague.evaluate(f"getComputedStyle(document.body).{name}.match(/\\d+/g).map(Number)")
        for name in ("color", "backgroundColor")
    )
    assert (min(paper) > 200, max(ink) < 100) == ((True, True) if scheme == "light" else (False, False))

    def send(token):
        until(colleague, "document.activeElement.name === 'token'")  # without a click
        colleague.keyboard.type(token)
        colleague.keyboard.press("Enter")

    send("wrong")
    colleague.locator("main p", has_text="That is not the token.").wait_for()
    send(TOKEN)
    colleague.wait_for_selector("body[data-ready]")
    until(colleague, "!location.search.includes('token')")
    assert colleague.url == link, "the same view"
    assert [line for line in errors if "status of 403" not in line] == []
    for tab in (first, colleague):
        tab.context.close()
