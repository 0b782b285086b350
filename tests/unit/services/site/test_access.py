"""Who may use the site: keys with roles, sessions, and posts from pages of other sites."""

import pytest
from starlette.responses import PlainTextResponse

from services.site.roles import Role
from services.site.site_parts import HomeLists
from services.site.site_routes import action_route
from tests.support.site import serve_site

KEYS = ["run key-of-run Ada", "label key-of-label", "view key-of-view"]


class WritingPart:
    """Part with an action for each role, which notes who did it."""

    def __init__(self, _):
        pass

    def routes(self):
        return [action_route(f"/do/{role}", self.act, role=role) for role in Role]

    async def act(self, request):
        return PlainTextResponse(f"done by {request.state.viewer.name}")

    def list_home_items(self):
        return HomeLists()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with serve_site(tmp_path_factory.mktemp("site") / "results", KEYS, [WritingPart]) as client:
        yield client


@pytest.fixture(scope="module")
def open_site(tmp_path_factory):
    with serve_site(tmp_path_factory.mktemp("open") / "results", None, [WritingPart]) as client:
        yield client


def test_a_page_without_a_session_leads_to_the_login_and_back(site):
    reply, _ = site.request("GET", "/?a=1", accept="text/html")
    assert (reply.status, reply.getheader("location")) == (303, "/login?next=/%3Fa%3D1")


def test_a_program_without_a_key_is_told_how_to_send_it(site):
    status, answer = site.api("GET", "/api/openapi.json")
    assert status == 401 and "Bearer KEY" in answer["error"]


@pytest.mark.parametrize(("key", "allowed"), [("run", 3), ("label", 2), ("view", 1)])
def test_a_key_allows_its_role_and_those_below(site, key, allowed):
    for role in Role:
        reply, body = site.request("POST", f"/do/{role}", authorization=f"Bearer key-of-{key}")
        assert reply.status == (200 if role <= allowed else 403)
        if reply.status == 403:
            assert f"needs the role {role}" in body.decode()


def test_a_session_stands_for_its_key_and_the_key_is_nowhere(site):
    site.cookie = ""
    assert site.log_in("key-of-run") == 303
    status, html = site.page("/")
    assert status == 200 and "Ada (run)" in html and "key-of" not in html + site.cookie
    token = site.csrf_token("/")
    assert site.submit("/do/run", {}, token)[1] == "done by Ada"
    assert site.submit("/logout", {}, token)[0].getheader("set-cookie").startswith('equipoise_session=""')
    site.cookie = ""


def test_a_wrong_key_or_cookie_begins_no_session(site):
    assert site.submit("/login", {"key": "key-of-ru"})[0].status == 403
    for cookie in ("x", "a.b.c", "0.9999999999.0.0", "é" * 9):
        assert site.request("GET", "/", accept="text/html", cookie=f"equipoise_session={cookie}")[0].status == 303


@pytest.mark.parametrize("next_path", ["//evil.example/", "https://evil.example", "/\\evil.example", "javascript:1"])
def test_the_login_leads_to_no_other_site(site, next_path):
    reply, _ = site.submit("/login", {"key": "key-of-view", "next": next_path})
    assert (reply.status, reply.getheader("location")) == (303, "/")


def test_a_form_without_its_token_or_from_another_site_is_refused(site, open_site):
    site.log_in("key-of-run")
    good = site.csrf_token("/")
    assert site.submit("/do/run", {}, "0" * 64)[0].status == 403
    assert site.submit("/do/run", {}, good, sec_fetch_site="cross-site")[0].status == 403
    assert site.submit("/do/run", {}, good, origin="http://evil.example")[0].status == 403
    assert site.submit("/do/run", {}, good)[0].status == 200
    site.cookie = ""
    assert open_site.submit("/do/run", {}, "")[0].status == 403
    assert open_site.request("POST", "/do/run", "{}", content_type="application/json")[0].status == 403
    assert open_site.submit("/do/run", {})[0].status == 200


def test_without_keys_only_names_of_this_machine_are_answered(open_site):
    assert open_site.page("/", host="evil.example:80")[0] == 403
    assert open_site.page("/", host=f"localhost:{open_site.port}")[0] == 200


@pytest.mark.parametrize("host", ["[::1", "[", "]:80", "a@b:c"])
def test_a_host_that_is_no_name_is_refused_without_a_failure(open_site, site, host):
    assert open_site.page("/", host=host)[0] == 403
    site.log_in("key-of-run")
    assert site.submit("/do/run", {}, site.csrf_token("/"), origin=f"http://{host}")[0].status == 403
    site.cookie = ""


def test_a_form_that_cannot_be_read_is_told_as_such(open_site):
    for content_type in ("multipart/form-data", "multipart/form-data; boundary=x"):
        reply, body = open_site.request("POST", "/do/run", "--y\r\nno form", content_type=content_type)
        assert reply.status == 400 and b"cannot read the request to '/do/run'" in body


def test_a_key_without_the_role_is_named_on_the_page_that_refuses(site):
    site.log_in("key-of-view")
    reply, html = site.submit("/do/run", {}, site.csrf_token("/"))
    assert reply.status == 403 and "view key 3 (view)" in html and "log out" in html
    site.cookie = ""
    reply, html = site.submit("/do/run", {})
    assert reply.status == 401 and "you are not logged in" in html and 'href="/login"' in html


def test_a_body_that_is_too_long_is_refused_before_it_is_read(open_site):
    assert open_site.submit("/do/run", {"a": "x" * 300_000})[0].status == 413
