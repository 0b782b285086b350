"""Limits of a connection: on slow or oversized heads, data after a body, clients that do not read, many requests."""

import asyncio
import json

import pytest

from services.http.timeout_protocol import TimeoutHttpProtocol
from tests.support.http_connections import open_connection
from tests.support.stepped_loop import run_pending, run_stepped, wait_for

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\n"
PARTIAL_HEAD = b"GET / HTTP/1.1\r\nhost: "
MAX_HEAD_BYTES = 32 * 1024
TRAILERS = b"a: bcd\r\n" * (MAX_HEAD_BYTES // 8)
LARGE_PART = bytes(16 << 20)  # more than the kernel buffers of both sides hold


async def send_response(send, body, size=None):
    """Send a response whose body begins with these bytes; without a size they are all of it."""
    headers = [(b"content-length", str(size or len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": size is not None})


async def answer_at_once(scope, receive, send):
    await send_response(send, b"ok")


async def answer_with_body_size(scope, receive, send):
    size, more_body = 0, True
    while more_body:
        message = await receive()
        size, more_body = size + len(message["body"]), message["more_body"]
    await send_response(send, str(size).encode())


async def answer_never(scope, receive, send):
    while (await receive())["type"] != "http.disconnect":
        pass


def run_with_client(app, use_client):
    """Run a coroutine function with a client of a server of this application, on a clock that stands still."""

    async def main():
        async with open_connection(app, TimeoutHttpProtocol) as connect:
            await use_client(await connect())

    run_stepped(main())


def check_rejection(reply, status, *mentioned):
    """Check that a reply is a rejection in JSON that says how long it is and that the connection ends."""
    head, _, body = reply.decode().partition("\r\n\r\n")
    first, *headers = head.lower().split("\r\n")
    assert first.startswith(f"http/1.1 {status} ")
    assert {"content-type: application/json", "connection: close", f"content-length: {len(body)}"} == {*headers}
    message = json.loads(body)["error"]
    assert [text for text in mentioned if text not in message] == []


async def check_head_timeout(client):
    """Check that a client is rejected when it has sent no complete head for ten seconds."""
    loop = asyncio.get_running_loop()
    await loop.advance(9.9)
    assert not client.received and not client.is_closed
    await loop.advance(0.2)
    check_rejection(await client.read_to_end(), 408, "10 s")


@pytest.mark.parametrize("start", [b"", b"G", PARTIAL_HEAD])
def test_head_that_does_not_arrive_within_ten_seconds_is_rejected(start):
    async def use_client(client):
        await client.send(start)
        await check_head_timeout(client)

    run_with_client(answer_at_once, use_client)


def test_head_that_arrives_in_time_is_answered_however_long_the_answer_takes():
    async def answer_after_a_minute(scope, receive, send):
        await asyncio.sleep(60)
        await send_response(send, b"late")

    async def use_client(client):
        loop = asyncio.get_running_loop()
        await client.send(GET[:-2])
        await loop.advance(9.9)
        await client.send(GET[-2:])
        for _ in range(6):
            await loop.advance(10)
        assert (await client.receive(17)).startswith(b"HTTP/1.1 200 ")

    run_with_client(answer_after_a_minute, use_client)


@pytest.mark.parametrize("body_size", [0, 3, 1 << 20])
@pytest.mark.parametrize("trailing", [PARTIAL_HEAD, b"\r\n"])
def test_next_head_on_a_connection_has_ten_seconds_again(trailing, body_size):
    async def use_client(client):
        loop = asyncio.get_running_loop()
        await loop.advance(9.9)
        data = POST + f"content-length: {body_size}\r\n\r\n".encode() + bytes(body_size)
        assert (await client.request(data))[1] == str(body_size).encode()
        await loop.advance(4.9)
        assert (await client.request(GET))[1] == b"0"
        await client.send(trailing)
        await check_head_timeout(client)

    run_with_client(answer_with_body_size, use_client)


def test_rest_of_a_body_that_was_not_read_has_ten_seconds():
    async def use_client(client):
        assert (await client.request(POST + b"content-length: 100\r\n\r\n"))[1] == b"ok"
        await client.send(b"1")
        await check_head_timeout(client)

    run_with_client(answer_at_once, use_client)


def test_second_head_times_out_while_the_first_request_is_answered():
    async def use_client(client):
        await client.send(GET + PARTIAL_HEAD)
        await check_head_timeout(client)

    run_with_client(answer_never, use_client)


@pytest.mark.parametrize(
    "earlier",
    [[], [GET], [POST + b"content-length: 5\r\n\r\n12345"], [GET[:-2] + b"a: " + b"x" * 20_000 + b"\r\n\r\n"] * 3],
    ids=["first", "after a head", "after a body", "after long heads"],
)
def test_unfinished_head_beyond_32_kib_is_rejected(earlier):
    async def use_client(client):
        for request in earlier:
            for part in (request[:-9000], request[-9000:]):
                await client.send(part)
            await client.request(b"")
        await client.send(PARTIAL_HEAD + b"x" * (MAX_HEAD_BYTES - len(PARTIAL_HEAD)))
        await run_pending()
        assert not client.received and not client.is_closed
        await client.send(b"x")
        check_rejection(await client.read_to_end(), 431, str(MAX_HEAD_BYTES))

    run_with_client(answer_with_body_size, use_client)


def test_body_may_be_longer_than_a_head():
    async def use_client(client):
        await client.send(POST + b"content-length: 200000\r\n\r\n")
        for _ in range(20):
            await client.send(bytes(10_000))
        assert (await client.request(b""))[1] == b"200000"

    run_with_client(answer_with_body_size, use_client)


def test_endless_trailers_end_the_connection():
    head = POST + b"transfer-encoding: chunked\r\n\r\n"

    async def send_after_the_response(client):
        assert (await client.request(head))[1] == b"ok"
        await client.send(b"0\r\n" + TRAILERS[: MAX_HEAD_BYTES - 3])
        assert not client.received and not client.is_closed
        await client.send(b"d")
        check_rejection(await client.read_to_end(), 431)

    async def send_during_the_response(client):
        await client.send(head)
        await client.send(b"0\r\n" + TRAILERS[: MAX_HEAD_BYTES - 3])
        assert not client.is_closed
        await client.send(b"d")
        assert await client.read_to_end() == b""  # a second response would be taken for the first

    run_with_client(answer_at_once, send_after_the_response)
    run_with_client(answer_never, send_during_the_response)


@pytest.mark.parametrize("earlier", [b"", GET])
def test_bytes_that_are_not_http_are_rejected_in_json(earlier):
    async def use_client(client):
        if earlier:
            await client.request(earlier)
        await client.send(b"hello\r\n\r\n")
        check_rejection(await client.read_to_end(), 400, "HTTP")

    run_with_client(answer_at_once, use_client)


def test_thousandth_response_ends_the_connection():
    async def use_client(client):
        for _ in range(999):
            head, _ = await client.request(GET)
            assert "connection: close" not in head
        head, body = await client.request(GET)
        assert "connection: close" in head and body == b"ok"
        assert await client.read_to_end() == b""

    run_with_client(answer_at_once, use_client)


async def answer_in_two_parts(scope, receive, send):
    """Send a large part at once, and another after 20 seconds."""
    await send_response(send, LARGE_PART, size=2 * len(LARGE_PART))
    await asyncio.sleep(20)
    await send({"type": "http.response.body", "body": LARGE_PART})


def test_client_that_does_not_read_for_thirty_seconds_is_disconnected():
    async def use_client(client):
        loop = asyncio.get_running_loop()
        client.transport.pause_reading()
        await client.send(GET)
        await loop.advance(29.9)
        assert not disconnected
        await loop.advance(0.2)
        assert disconnected
        client.transport.resume_reading()
        assert len(await client.read_to_end()) < len(LARGE_PART)

    disconnected = []

    async def answer(scope, receive, send):
        await send_response(send, LARGE_PART, size=2 * len(LARGE_PART))
        await answer_never(scope, receive, send)
        disconnected.append(True)

    run_with_client(answer, use_client)


def test_client_that_reads_again_gets_thirty_more_seconds():
    async def use_client(client):
        loop = asyncio.get_running_loop()
        client.transport.pause_reading()
        await client.send(GET)
        await loop.advance(15)
        client.transport.resume_reading()
        await wait_for(lambda: len(client.received) > len(LARGE_PART))
        client.transport.pause_reading()
        await loop.advance(5)  # the second part is written
        await loop.advance(29.9)
        client.transport.resume_reading()
        await wait_for(lambda: len(client.received) > 2 * len(LARGE_PART))

    run_with_client(answer_in_two_parts, use_client)
