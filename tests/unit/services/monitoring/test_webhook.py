"""An alarm is posted as JSON, and its receiver cannot hold or redirect the one who posts."""

import json
import socket
import threading
from contextlib import contextmanager
from urllib.error import HTTPError

import pytest

from services.monitoring.webhook import post_event

EVENT = {"event": "alarm", "stream": "pets/v1", "why": "brighter é"}


@contextmanager
def receive_post(reply):
    """Answer one request on a free port; yield the URL and the list that the request's head and body go to."""
    received, is_done = [], threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as file:
                head = b"".join(iter(file.readline, b"\r\n")).decode().lower()
                size = next(line for line in head.splitlines() if line.startswith("content-length")).split()[1]
                received.extend([head, file.read(int(size))])
                connection.sendall(reply)
                is_done.wait()  # the connection stays open

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook", received
        finally:
            is_done.set()
            thread.join()


def test_event_is_posted_as_json():
    with receive_post(b"HTTP/1.1 204 No Content\r\n\r\n") as (url, received):
        post_event(url, EVENT)
    head, body = received
    assert head.startswith("post /hook http/1.1\r\n") and "content-type: application/json\r\n" in head
    assert json.loads(body) == EVENT


def test_rest_of_a_long_reply_is_not_waited_for():
    kibibyte = bytes(1024)
    with receive_post(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + kibibyte) as (url, received):
        post_event(url, EVENT)
    assert json.loads(received[1]) == EVENT


def test_reply_that_does_not_arrive_in_time_is_an_error():
    reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
    with receive_post(reply) as (url, received), pytest.raises(TimeoutError):
        post_event(url, EVENT, timeout_seconds=0.1)
    assert json.loads(received[1]) == EVENT


def test_refusal_is_an_error_without_the_url():
    with receive_post(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n") as (url, _):
        with pytest.raises(HTTPError) as raised:
            post_event(url, EVENT)
        raised.value.close()
    assert raised.value.code == 403 and "hook" not in str(raised.value)


def test_event_that_is_no_json_is_not_sent():
    with pytest.raises(ValueError, match="JSON"):
        post_event("http://127.0.0.1:9/", {"score": float("nan")})
