"""A computation for a batcher that records its batches."""

import asyncio
import threading
import time

from services.serving.batching import DynamicBatcher


class BatchRecorder:
    """Computation that takes a given CPU time per batch, and records its batches and threads."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.batches = []
        self.thread_names = set()
        self.batches_at_callback = []
        self.num_computing = 0

    def compute_batch(self, requests):
        self.num_computing += 1
        assert self.num_computing == 1
        deadline = time.thread_time() + self.seconds
        while time.thread_time() < deadline:
            pass
        self.thread_names.add(threading.current_thread().name)
        self.batches.append(list(requests))
        self.num_computing -= 1
        return [ValueError(request) if request == "wrong" else request for request in requests]

    def on_batch_answered(self):
        assert self.num_computing == 0
        self.batches_at_callback.append(len(self.batches))

    def run_batcher(self, send_requests, max_batch=4, max_waiting=100, may_run_inline=lambda request: True):
        """Return what the coroutine `send_requests` returns, which gets a batcher for this computation."""

        async def main():
            batcher = DynamicBatcher(
                self.compute_batch,
                self.on_batch_answered,
                max_batch,
                max_waiting,
                "test",
                asyncio.get_running_loop(),
                may_run_inline,
            )
            batcher.start()
            try:
                return await send_requests(batcher)
            finally:
                batcher.close()
                await asyncio.to_thread(batcher.thread.join)

        return asyncio.run(main())
