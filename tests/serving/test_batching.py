"""Who computes, and when: at once what takes a moment, in a thread what takes longer, and never two at a time."""

import asyncio
import threading
import time

import pytest

from services.http.errors import RequestRejected
from services.serving.batching import INLINE_SECONDS, BatchTimeEstimate, DynamicBatcher


class Work:
    """Something to compute, which says where and how it was done."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.batches = []
        self.threads = set()
        self.after = []
        self.under_way = 0

    def compute(self, asked):
        self.under_way += 1
        assert self.under_way == 1
        until = time.thread_time() + self.seconds
        while time.thread_time() < until:
            pass
        self.threads.add(threading.current_thread().name)
        self.batches.append(list(asked))
        self.under_way -= 1
        return [ValueError(one) if one == "wrong" else one for one in asked]

    def followed(self):
        assert self.under_way == 0
        self.after.append(len(self.batches))

    def run(self, ask, batch=4, waiting=100, small=lambda asked: True):
        async def main():
            turns = DynamicBatcher(
                self.compute, self.followed, batch, waiting, "test", asyncio.get_running_loop(), small
            )
            try:
                return await ask(turns)
            finally:
                turns.close()
                await asyncio.to_thread(turns.thread.join)

        return asyncio.run(main())


def many(count, seconds=5.0):
    async def ask(turns):
        return await asyncio.gather(*(turns.submit(one, seconds) for one in range(count)), return_exceptions=True)

    return ask


@pytest.mark.parametrize("seconds", [0.0, 5 * INLINE_SECONDS])
def test_each_gets_its_answer_in_batches(seconds):
    work = Work(seconds)
    assert work.run(many(10)) == list(range(10))
    assert [one for batch in work.batches for one in batch] == list(range(10))
    assert [len(batch) for batch in work.batches] == [4, 4, 2]
    assert work.after == [1, 2, 3]


def test_what_takes_a_moment_stays_where_it_was_asked_and_the_rest_goes_to_the_thread():
    async def one_by_one(turns):
        for one in range(30):
            await turns.submit(one, 5.0)

    for seconds, last in ((0.0, threading.current_thread().name), (5 * INLINE_SECONDS, "turns-test")):
        work = Work(seconds)
        work.run(one_by_one)
        work.threads.clear()
        work.run(one_by_one)
        assert last in work.threads
    large = Work()
    large.run(one_by_one, small=lambda asked: False)
    assert large.threads == {"turns-test"}


def test_the_loop_goes_on_while_the_thread_computes():
    work, beats = Work(0.2), []

    async def ask(turns):
        turns.time_estimate.mean_seconds = 1.0
        waiting = asyncio.ensure_future(turns.submit("slow", 5.0))
        while not waiting.done():
            beats.append(time.monotonic())
            await asyncio.sleep(0.01)
        return await waiting

    assert work.run(ask) == "slow"
    assert len(beats) > 3


def test_one_that_fails_does_no_harm_to_its_batch():
    work = Work()

    def compute(asked):
        if "worse" in asked:
            raise RuntimeError("all of them")
        return Work.compute(work, asked)

    async def ask(turns):
        turns.compute_batch = compute
        asked = ("good", "wrong", "worse", "fine")
        return await asyncio.gather(*(turns.submit(one, 5.0) for one in asked), return_exceptions=True)

    good, wrong, worse, fine = work.run(ask)
    assert (good, fine) == ("good", "fine")
    assert isinstance(wrong, ValueError) and isinstance(worse, RuntimeError)


def test_what_follows_may_fail():
    work = Work()

    async def ask(turns):
        turns.on_batch_answered = lambda: 1 / 0
        return [await turns.submit(one, 5.0) for one in range(3)]

    assert work.run(ask) == [0, 1, 2]


def test_too_many_and_too_late_are_told_so():
    work = Work()
    found = work.run(many(6), waiting=4)
    assert found[:4] == [0, 1, 2, 3]
    assert all(isinstance(one, RequestRejected) and one.status == 429 and one.retry_after_seconds for one in found[4:])
    late = Work().run(many(3, seconds=-1.0))
    assert all(isinstance(one, RequestRejected) and one.status == 503 for one in late)


def test_those_who_left_are_not_computed():
    work = Work()

    async def ask(turns):
        leaving = asyncio.ensure_future(turns.submit("gone", 5.0))
        staying = asyncio.ensure_future(turns.submit("here", 5.0))
        await asyncio.sleep(0)  # both wait now, and nothing was taken yet
        leaving.cancel()
        return await staying

    assert work.run(ask) == "here"
    assert work.batches == [["here"]]


def test_the_pace_follows_what_was_seen():
    pace = BatchTimeEstimate()
    for _ in range(50):
        pace.add_batch(4, 0.01)
    assert pace.predict_seconds(1) == pytest.approx(0.01, rel=0.01)
    assert pace.predict_seconds(8) == pytest.approx(0.02, rel=0.01)
