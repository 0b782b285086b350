"""Run sums beside the backward pass: in a thread on a CPU, on a stream of its own on a GPU."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Protocol

import torch

Task = tuple[Callable[[], None], "Future[None]"]


class PendingSum(Protocol):
    """Sum that has been started."""

    def wait(self) -> object:
        """Wait for the sum; on a GPU let later work wait for it."""


class ThreadedSum:
    """Sum that runs in the process's one thread for sums, after those that were started before it.

    One thread, so that all workers take the same sums in the same order, whichever bucket is full first.
    """

    def __init__(self, run: Callable[[], None]) -> None:
        self.future: Future[None] = Future()
        get_task_queue().put((run, self.future))

    def wait(self) -> None:
        """Wait for the sum, and raise what it raised."""
        self.future.result()


class StreamedSum:
    """Sum that is queued on a stream of a GPU, after what the current stream has been given to do."""

    def __init__(self, run: Callable[[], None], device: torch.device) -> None:
        self.stream, self.device = get_stream(device), device
        self.stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self.stream):
            run()

    def wait(self) -> None:
        """Let what the current stream does from now on wait for the sum."""
        torch.cuda.current_stream(self.device).wait_stream(self.stream)


def start_sum(run: Callable[[], None], device: torch.device) -> PendingSum:
    """Start to run a sum of tensors on `device`, and return at once."""
    return StreamedSum(run, device) if device.type == "cuda" else ThreadedSum(run)


@cache
def get_task_queue() -> "queue.SimpleQueue[Task]":
    """Return the queue of the thread for sums, which starts at the first call."""
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    # a daemon, so that a process can end while a worker that it waits for does not answer
    threading.Thread(target=run_tasks, args=(tasks,), name="gradient sums", daemon=True).start()
    return tasks


def run_tasks(tasks: "queue.SimpleQueue[Task]") -> None:
    """Run the tasks of a queue for ever."""
    torch.set_flush_denormal(True)  # of this thread, as in the main one: additions of denormal numbers are slow
    while True:
        run, future = tasks.get()
        try:
            run()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        del run, future  # else the tensors of the last sum would be kept


@cache
def get_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream for sums of a GPU."""
    return torch.cuda.Stream(device)
