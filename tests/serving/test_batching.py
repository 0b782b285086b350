"""Dynamic batching: short batches run on the event loop, long ones on a thread, and never two at a time."""

import asyncio
import threading
import time

import pytest

from services.http.errors import RequestRejected
from services.serving.batch_times import INLINE_SECONDS
from tests.support.batch_recorder import BatchRecorder


def submit_together(count, timeout_seconds=5.0):
    """Return a coroutine function that submits numbers all at once and returns their outcomes."""

    async def send_requests(batcher):
        return await asyncio.gather(
            *(batcher.submit(number, timeout_seconds) for number in range(count)), return_exceptions=True
        )

    return send_requests


@pytest.mark.parametrize("seconds", [0.0, 5 * INLINE_SECONDS])
def test_requests_are_answered_in_full_batches(seconds):
    recorder = BatchRecorder(seconds)

    async def send_requests(batcher):
        for size in (1, 2, 4) * 3:
            batcher.batch_times.add_batch(size, seconds)
        return await submit_together(10)(batcher)

    assert recorder.run_batcher(send_requests) == list(range(10))
    assert [request for batch in recorder.batches for request in batch] == list(range(10))
    assert [len(batch) for batch in recorder.batches] == [4, 4, 2]
    assert recorder.batches_at_callback == [1, 2, 3]


def test_short_batches_run_on_the_event_loop_and_others_on_the_thread():
    async def submit_one_by_one(batcher):
        for number in range(30):
            await batcher.submit(number, 5.0)

    for seconds, thread_name in ((0.0, threading.current_thread().name), (5 * INLINE_SECONDS, "turns-test")):
        recorder = BatchRecorder(seconds)
        recorder.run_batcher(submit_one_by_one)
        recorder.thread_names.clear()
        recorder.run_batcher(submit_one_by_one)
        assert thread_name in recorder.thread_names
    large = BatchRecorder()
    large.run_batcher(submit_one_by_one, may_run_inline=lambda request: False)
    assert large.thread_names == {"turns-test"}


def test_event_loop_runs_while_the_thread_computes():
    recorder, wake_times = BatchRecorder(0.2), []

    async def send_requests(batcher):
        for _ in range(3):
            batcher.batch_times.add_batch(1, 1.0)
        request = asyncio.ensure_future(batcher.submit("slow", 5.0))
        while not request.done():
            wake_times.append(time.monotonic())
            await asyncio.sleep(0.01)
        return await request

    assert recorder.run_batcher(send_requests) == "slow"
    assert len(wake_times) > 3


def test_failing_request_does_not_fail_its_batch():
    recorder = BatchRecorder()

    def compute_batch(requests):
        if "worse" in requests:
            raise RuntimeError("the whole batch fails")
        return BatchRecorder.compute_batch(recorder, requests)

    async def send_requests(batcher):
        batcher.compute_batch = compute_batch
        requests = ("good", "wrong", "worse", "fine")
        return await asyncio.gather(*(batcher.submit(request, 5.0) for request in requests), return_exceptions=True)

    good, wrong, worse, fine = recorder.run_batcher(send_requests)
    assert (good, fine) == ("good", "fine")
    assert isinstance(wrong, ValueError) and isinstance(worse, RuntimeError)


def test_failing_callback_does_not_fail_requests():
    recorder = BatchRecorder()

    async def send_requests(batcher):
        batcher.on_batch_answered = lambda: 1 / 0
        return [await batcher.submit(number, 5.0) for number in range(3)]

    assert recorder.run_batcher(send_requests) == [0, 1, 2]


def test_requests_beyond_the_queue_or_the_deadline_are_rejected():
    recorder = BatchRecorder()
    outcomes = recorder.run_batcher(submit_together(6), max_waiting=4)
    assert outcomes[:4] == [0, 1, 2, 3]
    assert all(
        isinstance(outcome, RequestRejected) and outcome.status == 429 and outcome.retry_after_seconds
        for outcome in outcomes[4:]
    )
    late = BatchRecorder().run_batcher(submit_together(3, timeout_seconds=-1.0))
    assert all(isinstance(outcome, RequestRejected) and outcome.status == 503 for outcome in late)


def test_cancelled_requests_are_not_computed():
    recorder = BatchRecorder()

    async def send_requests(batcher):
        leaving = asyncio.ensure_future(batcher.submit("gone", 5.0))
        staying = asyncio.ensure_future(batcher.submit("here", 5.0))
        await asyncio.sleep(0)  # both are queued now, and no batch was taken yet
        leaving.cancel()
        return await staying

    assert recorder.run_batcher(send_requests) == "here"
    assert recorder.batches == [["here"]]


def test_answers_are_delivered_before_the_callback_and_before_the_next_batch():
    order = []

    async def send_requests(batcher):
        async def send(number):
            order.append(await batcher.submit(number, 5.0))

        for _ in range(3):
            batcher.batch_times.add_batch(4, 0.0)
        batcher.on_batch_answered = lambda: order.append("callback")
        await asyncio.gather(*(send(number) for number in range(8)))
        await asyncio.sleep(0.01)

    BatchRecorder().run_batcher(send_requests)
    assert order == [0, 1, 2, 3, "callback", 4, 5, 6, 7, "callback"]


def test_many_short_requests_leave_the_event_loop_free_every_two_milliseconds():
    num_requests, turns = 40, []

    async def send_requests(batcher):
        for _ in range(3):
            for size in (1, 2, 4, 8, 16, 32):
                batcher.batch_times.add_batch(size, size * INLINE_SECONDS / 4)
        requests = asyncio.gather(*(batcher.submit(number, 5.0) for number in range(num_requests)))
        while not requests.done():
            await asyncio.sleep(0)
            turns.append(len(recorder.batches))
        return await requests

    recorder = BatchRecorder()
    assert recorder.run_batcher(send_requests, max_batch=32) == list(range(num_requests))
    assert recorder.thread_names == {threading.current_thread().name}
    assert max(map(len, recorder.batches[:3])) <= 4
    assert set(turns) >= set(range(1, 4))  # other tasks ran between these batches
