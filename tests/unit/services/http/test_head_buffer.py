"""Heads of responses are sent together with the beginning of their bodies, and never later than without a buffer."""

from services.http.head_buffer import HeadBufferingTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class WrittenData:
    """Transport that keeps what is written."""

    def __init__(self):
        self.writes = []
        self.is_closed = False

    def write(self, data):
        self.writes.append(data)

    def close(self):
        self.is_closed = True

    def is_closing(self):
        return self.is_closed


def test_head_and_body_are_one_write():
    transport = WrittenData()
    buffering = HeadBufferingTransport(transport)
    buffering.write(HEAD)
    assert transport.writes == []
    buffering.write(b"ok")
    buffering.write(b"more")
    assert transport.writes == [HEAD + b"ok", b"more"]


def test_empty_body_sends_the_head():
    transport = WrittenData()
    buffering = HeadBufferingTransport(transport)
    buffering.write(HEAD)
    buffering.write(b"")
    assert transport.writes == [HEAD]


def test_interim_response_is_sent_at_once():
    transport = WrittenData()
    HeadBufferingTransport(transport).write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert transport.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]


def test_head_without_a_body_is_sent_by_flush_and_by_close():
    for end in ("flush", "close"):
        transport = WrittenData()
        buffering = HeadBufferingTransport(transport)
        buffering.write(HEAD)
        getattr(buffering, end)()
        assert transport.writes == [HEAD] and transport.is_closed == (end == "close")


def test_flush_without_a_head_writes_nothing():
    transport = WrittenData()
    HeadBufferingTransport(transport).flush()
    assert transport.writes == []


def test_body_that_looks_like_a_head_follows_its_own_head():
    transport = WrittenData()
    buffering = HeadBufferingTransport(transport)
    buffering.write(HEAD)
    buffering.write(HEAD)
    assert transport.writes == [HEAD + HEAD]
