"""Keys of requests: where they may be sent, and what a browser may send for another site's page."""

import asyncio
import base64

import pytest
from starlette.responses import Response
from starlette.routing import Route

from services.http.auth import ApiKeyAuth, build_challenge, extract_key, reject_cross_site
from tests.support.asgi import build_request
from tests.support.rejections import raises_rejection


def as_password(text, prefix="user:"):
    return "Basic " + base64.b64encode((prefix + text).encode()).decode()


@pytest.mark.parametrize("key", ["open-sesame", "a:b:c", "é"])
def test_key_is_read_from_every_form_of_request(key):
    assert extract_key(build_request(authorization=f"Bearer {key}")) == key
    assert extract_key(build_request(x_api_key=key)) == key
    assert extract_key(build_request(authorization="Digest x", x_api_key=key)) == key
    assert extract_key(build_request(method="GET", authorization=as_password(key))) == key


def test_request_without_a_key_has_an_empty_one():
    assert extract_key(build_request()) == extract_key(build_request(authorization="Bearer")) == ""


def test_password_is_accepted_for_reading_only():
    for method in ("POST", "PUT", "HEAD"):
        assert extract_key(build_request(method=method, authorization=as_password("open-sesame"))) == ""


@pytest.mark.parametrize(
    "authorization",
    [
        as_password("open-sesame").replace("=", "!"),
        "Basic !" + as_password("open-sesame").removeprefix("Basic "),
        "Basic " + base64.b64encode(b"user:\xff").decode(),
        as_password("open-sesame", prefix=""),
        "Basic",
    ],
)
def test_damaged_password_is_no_key(authorization):
    assert extract_key(build_request(method="GET", authorization=authorization, x_api_key="open-sesame")) == ""


@pytest.mark.parametrize("key", ["first", "second", "é"])
def test_each_of_several_keys_is_accepted(key):
    auth = ApiKeyAuth(("first", "second", "é"))
    auth.require_key(build_request(x_api_key=key))
    for wrong in (key[:-1], key + "x", key.upper()):
        with raises_rejection(401):
            auth.require_key(build_request(x_api_key=wrong))
    with raises_rejection(401):
        auth.require_key(build_request(authorization="Bearer wrong", x_api_key=key))


def test_protected_route_answers_only_with_a_key():
    async def answer(request):
        return Response(b"secret", 201)

    route = Route("/models/{name}", answer, methods=["PUT"])
    protected = ApiKeyAuth(("open-sesame",)).protect(route)
    assert protected.path == route.path and protected.methods == {"PUT"}
    with raises_rejection(401):
        asyncio.run(protected.endpoint(build_request()))
    response = asyncio.run(protected.endpoint(build_request(x_api_key="open-sesame")))
    assert (response.status_code, response.body) == (201, b"secret")


def test_route_is_left_open_without_keys():
    route = Route("/predict", lambda request: None)
    assert ApiKeyAuth(()).protect(route) is route
    assert not ApiKeyAuth(()) and ApiKeyAuth(("open-sesame",))


def test_browser_is_told_to_ask_for_a_password_where_one_is_accepted():
    requests = [build_request(method=method) for method in ("GET", "POST", "HEAD")]
    challenges = [build_challenge(request)["www-authenticate"] for request in requests]
    assert challenges == ['Basic realm="the key as password"', "Bearer", "Bearer"]


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "else"])
def test_request_from_the_page_of_another_site_is_rejected(site):
    with raises_rejection(403):
        reject_cross_site(build_request(sec_fetch_site=site))


def test_request_from_the_same_site_or_a_program_is_accepted():
    for headers in ({}, {"sec_fetch_site": "none"}, {"sec_fetch_site": "same-origin"}):
        reject_cross_site(build_request(**headers))
