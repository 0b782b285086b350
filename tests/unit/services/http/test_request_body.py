"""Bodies of requests: limits on size, memory and time, compression, and draining what is not read."""

import asyncio
import gzip
import zlib

import pytest
from starlette.requests import ClientDisconnect

from services.http.request_body import BodyReader, decompress_body, drain_body
from services.limits import Limits
from tests.support.asgi import ScriptedBody, build_request
from tests.support.rejections import raises_rejection
from tests.support.stepped_loop import run_pending, run_stepped

COMPRESSORS = {"gzip": gzip.compress, "deflate": zlib.compress}


def read_body(reader, *parts, **headers):
    return asyncio.run(reader.read_body(build_request(ScriptedBody(*parts), **headers)))


@pytest.fixture
def reader():
    """Return a reader of bodies up to 10 bytes, and 25 bytes at the same time."""
    return BodyReader(Limits(body_bytes=10, bodies_bytes=25, read_seconds=30.0))


@pytest.mark.parametrize("parts", [[], [b"abc"], [b"abc", b"", b"defg"], [b"0123456789"], [b"01234", b"56789"]])
def test_body_is_read_from_its_parts(reader, parts):
    request = build_request(ScriptedBody(*parts))
    assert asyncio.run(reader.read_body(request)) == b"".join(parts)
    assert request.state.read


@pytest.mark.parametrize("parts", [[b"0123456789a"], [b"01234", b"56789", b"a"]])
def test_body_beyond_the_limit_is_rejected(reader, parts):
    with raises_rejection(413, "10 bytes"):
        read_body(reader, *parts)


def test_body_declared_beyond_the_limit_is_rejected_before_it_is_read(reader):
    body = ScriptedBody(b"x" * 11)
    with raises_rejection(413, "10 bytes"):
        asyncio.run(reader.read_body(build_request(body, content_length="11")))
    assert body.num_received == 0
    assert read_body(reader, b"x" * 10, content_length="10") == b"x" * 10
    assert read_body(reader, b"x", content_length="many") == b"x"


def test_bodies_that_arrive_together_share_the_memory(reader):
    async def start_reading(*bodies):
        requests = [build_request(body) for body in bodies]
        return [asyncio.create_task(reader.read_body(request)) for request in requests]

    async def main():
        unfinished = await start_reading(*(ScriptedBody(b"0123456789", is_complete=False) for _ in range(2)))
        await run_pending()
        assert await reader.read_body(build_request(ScriptedBody(b"01234"))) == b"01234"
        with raises_rejection(429) as raised:
            await reader.read_body(build_request(ScriptedBody(b"012345")))
        assert raised.value.retry_after_seconds
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        assert await asyncio.gather(*(await start_reading(ScriptedBody(b"0123456789"), ScriptedBody(b"x" * 10))))

    asyncio.run(main())


def test_memory_is_free_again_after_every_kind_of_end(reader):
    for _ in range(5):
        with raises_rejection(413):
            read_body(reader, b"0123456789", b"0123456789")
        with pytest.raises(ClientDisconnect):
            asyncio.run(reader.read_body(build_request(ScriptedBody(b"0123456789", disconnects=True))))
        with raises_rejection(415):
            read_body(reader, b"0123456789", content_encoding="br")
    assert reader.bytes_in_flight == 0
    assert read_body(reader, b"0123456789") == b"0123456789"


def test_body_that_does_not_arrive_in_time_is_rejected(reader):
    async def main():
        loop = asyncio.get_running_loop()
        body = ScriptedBody(b"01234", is_complete=False)
        task = asyncio.create_task(reader.read_body(build_request(body)))
        await run_pending()
        await loop.advance(29.9)
        assert not task.done()
        await loop.advance(0.2)
        with raises_rejection(408, "30 s"):
            await task

    run_stepped(main())


def test_rejected_body_is_drained_to_its_end():
    for body in (ScriptedBody(b"a", b"b", b"c"), ScriptedBody(b"a", disconnects=True), ScriptedBody()):
        asyncio.run(drain_body(build_request(body)))
        assert body.num_received == len(body.messages)


def test_rejected_body_is_drained_for_five_seconds_at_most():
    async def main():
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(drain_body(build_request(ScriptedBody(b"a", is_complete=False))))
        await run_pending()
        await loop.advance(4.9)
        assert not task.done()
        await loop.advance(0.2)
        assert task.done()
        await task

    run_stepped(main())


@pytest.mark.parametrize("encoding", [None, "", "identity"])
def test_body_without_encoding_is_left_alone(encoding):
    assert decompress_body(b"\x1f\x8b as it is", encoding, 1) == b"\x1f\x8b as it is"


@pytest.mark.parametrize("encoding", COMPRESSORS)
@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256)) * 40])
def test_compressed_body_is_decompressed(encoding, body):
    compressed = COMPRESSORS[encoding](body)
    assert decompress_body(compressed, encoding, max(len(body), 1)) == body
    for wrong in (compressed[:-1], compressed[: len(compressed) // 2], b"", compressed + b"x", compressed + compressed):
        with raises_rejection(400, encoding):
            decompress_body(wrong, encoding, 1 << 20)
    with raises_rejection(400, encoding):
        decompress_body(b"no such format", encoding, 1 << 20)


@pytest.mark.parametrize("encoding", COMPRESSORS)
@pytest.mark.parametrize("size", [101, 102, 100_000])
def test_body_that_decompresses_beyond_the_limit_is_rejected(encoding, size):
    with raises_rejection(413, "decompressed", "100 bytes"):
        decompress_body(COMPRESSORS[encoding](bytes(size)), encoding, 100)


@pytest.mark.parametrize("encoding", ["br", "GZIP2", "gzip, deflate"])
def test_unknown_encoding_is_rejected(encoding):
    with raises_rejection(415, encoding):
        decompress_body(b"x", encoding, 100)


def test_limit_holds_for_the_decompressed_body_of_a_request():
    reader = BodyReader(Limits(body_bytes=1000))
    assert read_body(reader, gzip.compress(bytes(1000)), content_encoding="gzip") == bytes(1000)
    with raises_rejection(413, "1000 bytes"):
        read_body(reader, gzip.compress(bytes(1001)), content_encoding="gzip")
