"""Every route of the whole site against requests that nobody should send: none changes, reads or breaks anything."""

import re
from urllib.parse import quote, urlencode

import pytest

from services.site.application import SiteApplication, list_part_builders
from services.site.settings import SiteSettings
from tests.support.site import serve_site

OUTSIDE_TEXT = "what-lies-outside-is-nobody's"
KEYS = ["run key-of-run", "label key-of-label", "view key-of-view"]
NASTY_NAMES = [
    "../secret",
    "..%2fsecret",
    "away/secret",
    "/etc/passwd",
    ".site/session-secret",
    ".site/ray-token",
    "a\0b",
    "a\nb",
    "x" * 3000,
    "'; DROP TABLE jobs; --",
    "<script>alert(1)</script>",
    "\N{PILE OF POO}",
    "%00",
]
NASTY_VALUES = [
    "\0",
    "-1",
    "9" * 400,
    "0000000001" + "9" * 30,
    "nan",
    "[",
    "'",
    "lr>[",
    "\N{ARABIC-INDIC DIGIT THREE}",
    "x" * 5000,
]
QUERY_NAMES = (
    "filter sort offset limit path next version lines page led name holder out workload lr deadline price nodes rate"
)
OPEN_PATHS = ("/login", "/assets/", "/figures/plotly")
"""what everyone may read: the login, style sheets and scripts"""
PARAMETER = re.compile(r"\{\w+(?::\w+)?\}")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    results = tmp_path_factory.mktemp("hostile") / "results"
    results.mkdir()
    (results.parent / "secret").write_text(OUTSIDE_TEXT)
    (results / "away").symlink_to(results.parent)
    (results / ".site").mkdir()
    (results / ".site" / "ray-token").write_text(OUTSIDE_TEXT)
    with serve_site(results, KEYS) as client:
        yield client


@pytest.fixture(scope="module")
def routes(tmp_path_factory):
    application = SiteApplication(SiteSettings(results=tmp_path_factory.mktemp("routes")), list_part_builders())
    return [(method, route.path) for route in application.app.routes for method in sorted(route.methods - {"HEAD"})]


def fill_path(path, name):
    return PARAMETER.sub(quote(name, safe=""), path)


def test_nothing_is_changed_without_a_key(site, routes):
    for method, path in routes:
        if method == "GET" or path in ("/login", "/logout"):
            continue
        for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "equipoise_session=a.b.c.d"}):
            reply, _ = site.request(method, fill_path(path, "a"), "{}", content_type="application/json", **headers)
            assert reply.status == 401, (method, path, headers)


def test_nothing_is_read_without_a_key(site, routes):
    for method, path in routes:
        if method == "GET" and not path.startswith(OPEN_PATHS):
            assert site.request("GET", fill_path(path, "a"))[0].status == 401, path


def test_a_key_that_may_only_view_changes_nothing(site, routes):
    for method, path in routes:
        if method != "GET" and path not in ("/login", "/logout", "/models/{name}/try"):  # which only predicts
            reply, body = site.request(
                method, fill_path(path, "a"), "{}", content_type="application/json", authorization="Bearer key-of-view"
            )
            assert reply.status == 403 and b"it needs the role" in body, (method, path)


def test_a_session_changes_nothing_on_behalf_of_another_page(site, routes):
    site.log_in("key-of-run")
    for method, path in routes:
        if method != "GET" and path != "/login":
            reply, _ = site.request(method, fill_path(path, "a"), "{}", content_type="application/json")
            assert reply.status == 403, (method, path)
    site.cookie = ""


def test_no_name_of_any_route_reads_outside_or_breaks_the_site(site, routes):
    for method, path in routes:
        if method != "GET" or not PARAMETER.search(path):
            continue
        for name in NASTY_NAMES:
            reply, body = site.request("GET", fill_path(path, name), authorization="Bearer key-of-run")
            assert reply.status < 500, (path, name, body[:300])
            assert OUTSIDE_TEXT.encode() not in body and b"root:" not in body, (path, name)
            is_page = "html" in reply.getheader("content-type", "")
            assert not (is_page and b"<script>alert" in body), (path, name)


@pytest.mark.parametrize(
    "body", ["{}", '{"bundle": "x"}', "[", "\udcff"], ids=["empty", "of a bundle", "cut off", "bytes"]
)
def test_no_name_and_no_body_of_any_change_breaks_the_site(site, routes, body):
    content = body.encode("utf-8", "surrogateescape")
    for method, path in routes:
        if method == "GET" or path in ("/login", "/logout"):
            continue
        for name in NASTY_NAMES if PARAMETER.search(path) else [""]:
            reply, answer = site.request(
                method,
                fill_path(path, name),
                content,
                content_type="application/json",
                authorization="Bearer key-of-run",
            )
            assert reply.status < 500 or reply.status == 503, (method, path, name, answer[:300])
            assert OUTSIDE_TEXT.encode() not in answer, (method, path, name)


def test_no_query_of_any_page_breaks_the_site(site, routes):
    for path in [path for method, path in routes if method == "GET"]:
        for value in NASTY_VALUES:
            query = urlencode(dict.fromkeys(QUERY_NAMES.split(), value))
            reply, body = site.request("GET", f"{fill_path(path, 'train')}?{query}", authorization="Bearer key-of-run")
            assert reply.status < 500, (path, value[:20], body[:300])
