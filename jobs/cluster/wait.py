"""Wait until the cluster has free slots for all workers at once, and print meanwhile what is missing."""

import time

from ray.util.placement_group import placement_group, remove_placement_group

from jobs.cluster.resources import format_slots, free_slots, max_slots, total_slots, worker_resources

SLOT_POLL_SECONDS, LOST_WORKERS_CHECK_SECONDS, REPEAT_MESSAGE_SECONDS = 1.0, 5.0, 60.0
SLOT_RELEASE_SECONDS = 5.0


class ThrottledPrinter:
    """Prints a text when it changes, and again after each minute for which it stays the same."""

    def __init__(self) -> None:
        self.last_text, self.printed_at = "", 0.0

    def __call__(self, text: str) -> None:
        """Print a text if it is new or was last printed over a minute ago; remember an empty one without printing."""
        now = time.monotonic()
        if text and (text != self.last_text or now > self.printed_at + REPEAT_MESSAGE_SECONDS):
            print(text, flush=True)
            self.printed_at = now
        self.last_text = text


class LostWorkersNotice:
    """Tells the user that a run waits for nodes, when so many were lost that its workers no longer fit."""

    def __init__(self, workers: int, threads: int, gpu: bool) -> None:
        self.required_slots = workers, threads, gpu
        self.print_throttled, self.next_check_at = ThrottledPrinter(), time.monotonic() + LOST_WORKERS_CHECK_SECONDS

    def check_cluster(self) -> None:
        """Print the waiting message if slots are missing; look at the cluster once in 5 s at most."""
        if time.monotonic() < self.next_check_at:
            return
        workers, threads, gpu = self.required_slots
        self.print_throttled(
            format_waiting_message(*self.required_slots) if total_slots(threads, gpu) < workers else ""
        )
        self.next_check_at = time.monotonic() + LOST_WORKERS_CHECK_SECONDS


def wait_for_slots(workers: int, threads: int, gpu: bool) -> None:
    """Wait until enough slots for all workers are free at the same time; an autoscaling cluster starts nodes for them.

    Ray Train by itself would wait a minute in silence and then fail. The slots are released again for the workers to
    take; the nodes stay, as they do during any other pause between two jobs.
    """
    if slots_are_free(workers, threads, gpu):
        return
    group = placement_group([worker_resources(threads, gpu)] * workers)  # all or none, like the workers
    print_throttled, started_at = ThrottledPrinter(), time.monotonic()
    try:
        while not group.wait(SLOT_POLL_SECONDS):
            print_throttled(format_waiting_message(workers, threads, gpu))
    finally:
        remove_placement_group(group)
    waited = time.monotonic() - started_at
    print(f"{format_slots(workers, threads, gpu)} available after {waited:.0f} s", flush=True)


def slots_are_free(workers: int, threads: int, gpu: bool) -> bool:
    """Return whether enough slots are free, waiting up to 5 s for slots that are being released.

    A worker group that has just ended releases its slots in a moment; the cluster should not grow meanwhile.
    """
    deadline = time.monotonic() + SLOT_RELEASE_SECONDS
    while not (free := free_slots(threads, gpu) >= workers):
        if total_slots(threads, gpu) < workers or time.monotonic() > deadline:
            break
        time.sleep(SLOT_POLL_SECONDS / 5)
    return free


def format_waiting_message(workers: int, threads: int, gpu: bool) -> str:
    """Return a sentence that says which slots are waited for and what the cluster has."""
    present, limit = total_slots(threads, gpu), max_slots(threads, gpu)
    growth = f" and may grow to {limit}" if limit > present else ""
    if present >= workers:  # they are about to be free, or other jobs hold them for long
        busy = max(0, present - free_slots(threads, gpu))
        needed = format_slots(workers, threads, gpu)
        return f"waiting for {needed}: the cluster has {present}{growth}, and {busy} are in use"
    return f"waiting for {format_slots(workers - present, threads, gpu, 'more ')}: the cluster has {present}{growth}"
