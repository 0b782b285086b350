"""Responses: strict JSON, compression that clients can undo, and responses before a body has arrived."""

import asyncio
import gzip
import json
import zlib

import pytest
from starlette.responses import Response

from services.http.responses import EarlyResponse, compress_response, dump_json, json_response
from tests.support.asgi import ScriptedBody, build_request

BODY = bytes(range(64)) * 16
DECOMPRESS = {"gzip": gzip.decompress, "deflate": zlib.decompress}


def test_json_is_compact_and_reads_back():
    content = {"a": [1, 2.5, None, "é"], "b": {}}
    text = dump_json(content)
    assert json.loads(text) == content and b" " not in text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_number_that_json_does_not_have_is_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        dump_json({"score": value})


def test_json_response_has_its_status_headers_and_type():
    response = json_response({"a": 1}, 429, {"retry-after": "1"})
    assert (response.status_code, response.body, response.headers["retry-after"]) == (429, b'{"a":1}', "1")
    assert response.headers["content-type"] == "application/json" and response.headers["content-length"] == "7"
    assert json_response([]).status_code == 200


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [("gzip", "gzip"), ("deflate", "deflate"), ("deflate, gzip", "gzip"), ("br, deflate;q=0.5", "deflate")],
)
def test_response_is_compressed_as_the_client_accepts_it(accepted, expected):
    response = compress_response(Response(BODY), build_request(accept_encoding=accepted))
    assert response.headers["content-encoding"] == expected
    assert response.headers["content-length"] == str(len(response.body)) and len(response.body) < len(BODY)
    assert DECOMPRESS[expected](response.body) == BODY


@pytest.mark.parametrize("headers", [{}, {"accept_encoding": "br, identity"}])
def test_response_is_not_compressed_for_other_clients(headers):
    response = compress_response(Response(BODY), build_request(**headers))
    assert response.body == BODY and "content-encoding" not in response.headers


def test_only_responses_from_one_kibibyte_are_compressed():
    for size, is_compressed in ((0, False), (1023, False), (1024, True)):
        response = compress_response(Response(bytes(size)), build_request(accept_encoding="gzip"))
        assert ("content-encoding" in response.headers) == is_compressed
        assert response.headers["content-length"] == str(len(response.body))


def test_early_response_is_sent_before_the_rest_of_the_body_is_read():
    body, sent = ScriptedBody(b"a", b"b"), []
    response = EarlyResponse(build_request(body), {"error": "too large"}, 413, {"retry-after": "1"})

    async def send(message):
        sent.append((message, body.num_received))

    async def receive():
        raise AssertionError("the response reads through its request")

    asyncio.run(response({"type": "http"}, receive, send))
    (start, _), (content, received_before), (end, received_after) = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert start["type"] == "http.response.start" and start["status"] == 413
    assert headers["connection"] == "close" and headers["retry-after"] == "1"
    assert headers["content-type"] == "application/json" and headers["content-length"] == str(len(content["body"]))
    assert json.loads(content["body"]) == {"error": "too large"}
    assert content["more_body"] and received_before == 0
    assert end == {"type": "http.response.body", "body": b""} and received_after == len(body.messages)
