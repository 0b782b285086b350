"""Requests that are computed on the event loop as soon as they come, at once or in two stages."""

import asyncio
import threading
import time

import pytest

from services.http.errors import RequestRejected
from services.serving.batch_times import INLINE_SECONDS
from tests.support.batch_recorder import BatchRecorder


def test_lonely_request_of_three_milliseconds_is_computed_in_two_stages():
    order = []

    def spend(seconds):
        deadline = time.thread_time() + seconds
        while time.thread_time() < deadline:
            pass

    def prepare(request):
        order.append("prepare")
        spend(0.7 * INLINE_SECONDS)
        return f"prepared {request}"

    async def send_requests(batcher):
        for _ in range(3):
            batcher.batch_times.add_batch(1, 1.4 * INLINE_SECONDS)
        batcher.list_first_stages = lambda request: [prepare]
        request = asyncio.ensure_future(batcher.submit("picture", 5.0, is_alone=True))
        while not request.done():
            await asyncio.sleep(0)
            order.append("other work")
        return await request

    recorder = BatchRecorder(0.7 * INLINE_SECONDS)
    assert recorder.run_batcher(send_requests) == "prepared picture"
    assert order.index("prepare") < order.index("other work") and recorder.batches[0] == ["prepared picture"]


def test_requests_that_come_between_the_stages_wait_and_are_answered():
    async def send_requests(batcher):
        for _ in range(3):
            batcher.batch_times.add_batch(1, 1.4 * INLINE_SECONDS)
        first = asyncio.ensure_future(batcher.submit("first", 5.0, is_alone=True))
        await asyncio.sleep(0)  # its first stage is over
        others = [asyncio.ensure_future(batcher.submit(number, 5.0, is_alone=True)) for number in range(3)]
        return await asyncio.gather(first, *others)

    recorder = BatchRecorder()
    assert recorder.run_batcher(send_requests) == ["first", 0, 1, 2]
    assert recorder.batches[0] == ["first"]


def test_request_that_is_cancelled_between_its_stages_does_not_stop_the_next():
    async def send_requests(batcher):
        for _ in range(3):
            batcher.batch_times.add_batch(1, 1.4 * INLINE_SECONDS)
        gone = asyncio.ensure_future(batcher.submit("gone", 5.0, is_alone=True))
        await asyncio.sleep(0)
        gone.cancel()
        return await batcher.submit("next", 5.0)

    recorder = BatchRecorder()
    assert recorder.run_batcher(send_requests) == "next"
    assert recorder.batches == [["next"]]


def test_lonely_request_that_fails_raises_its_error():
    async def send_requests(batcher):
        return await asyncio.gather(batcher.submit("wrong", 5.0, is_alone=True), return_exceptions=True)

    (error,) = BatchRecorder().run_batcher(send_requests)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("is_alone", [True, False])
def test_request_that_cannot_be_prepared_is_answered_with_its_error_and_the_next_ones_too(is_alone):
    def prepare(request):
        raise RuntimeError("cannot prepare this")

    async def send_requests(batcher):
        for _ in range(3):
            batcher.batch_times.add_batch(1, 1.4 * INLINE_SECONDS)
        batcher.list_first_stages = lambda request: [prepare]
        outcomes = []
        for request in ("wrong", "good"):
            outcomes += await asyncio.gather(batcher.submit(request, 5.0, is_alone), return_exceptions=True)
        return outcomes

    wrong, good = BatchRecorder().run_batcher(send_requests)
    assert isinstance(wrong, ValueError) and good == "good"


def test_request_in_stages_that_is_late_or_cancelled_is_not_computed():
    async def send_requests(batcher):
        for _ in range(3):
            batcher.batch_times.add_batch(1, 1.4 * INLINE_SECONDS)
        late = asyncio.ensure_future(batcher.submit("late", -1.0))
        await asyncio.sleep(0.01)
        for _ in range(3):
            batcher.batch_times.add_batch(1, 1.4 * INLINE_SECONDS)
        gone = asyncio.ensure_future(batcher.submit("gone", 5.0))
        await asyncio.sleep(0)
        gone.cancel()
        return await asyncio.gather(late, batcher.submit("next", 5.0), return_exceptions=True)

    recorder = BatchRecorder()
    late, answer = recorder.run_batcher(send_requests)
    assert isinstance(late, RequestRejected) and late.status == 503
    assert answer == "next" and recorder.batches == [["next"]]


@pytest.mark.parametrize("is_alone", [True, False])
def test_request_runs_through_all_its_stages_with_other_work_after_each(is_alone):
    events = []

    def add_letter(letter):
        def stage(request):
            events.append(letter)
            return request + letter

        return stage

    async def send_requests(batcher):
        for _ in range(3):
            batcher.batch_times.add_batch(1, 2.5 * INLINE_SECONDS)  # too long for two stages
        batcher.list_first_stages = lambda request: [add_letter("a"), add_letter("b"), add_letter("c")]
        request = asyncio.ensure_future(batcher.submit("picture ", 5.0, is_alone))
        while not request.done():
            await asyncio.sleep(0)
            events.append("-")
        return await request

    recorder = BatchRecorder()
    assert recorder.run_batcher(send_requests) == "picture abc"
    assert recorder.batches == [["picture abc"]] and recorder.thread_names == {threading.current_thread().name}
    assert "".join(events).replace("--", "-").strip("-").split("-") == ["a", "b", "c"]


def test_several_waiting_requests_go_to_the_thread_instead_of_one_in_stages():
    async def send_requests(batcher):
        for size, each in ((1, 1.4), (2, 1.35), (4, 1.3)):
            for _ in range(3):
                batcher.batch_times.add_batch(size, size * each * INLINE_SECONDS)
        batcher.list_first_stages = lambda request: [lambda request: f"stage of {request}"]
        return await asyncio.gather(*(batcher.submit(number, 5.0) for number in range(3)))

    recorder = BatchRecorder()
    assert recorder.run_batcher(send_requests) == [0, 1, 2]
    assert recorder.batches == [[0, 1, 2]] and recorder.thread_names != {threading.current_thread().name}
