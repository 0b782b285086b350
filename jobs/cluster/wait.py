"""Room for workers: asked of the cluster as a whole and waited for, while it is said what lacks."""

import time

from ray.util.placement_group import placement_group, remove_placement_group

from jobs.cluster.resources import format_slots, free_slots, max_slots, total_slots

SLOT_POLL_SECONDS, LOST_WORKERS_CHECK_SECONDS, REPEAT_MESSAGE_SECONDS = 1.0, 5.0, 60.0
SLOT_RELEASE_SECONDS = 5.0


class ThrottledPrinter:
    """What is said once, and again each minute that it lasts."""

    def __init__(self) -> None:
        self.last_text, self.printed_at = "", 0.0

    def __call__(self, text: str) -> None:
        """Say it if it is news."""
        now = time.monotonic()
        if text and (text != self.last_text or now > self.printed_at + REPEAT_MESSAGE_SECONDS):
            print(text, flush=True)
            self.printed_at = now
        self.last_text = text


class LostWorkersNotice:
    """Says of a run under way that it waits, where nodes were lost and fewer workers are left than it takes."""

    def __init__(self, workers: int, threads: int, gpu: bool) -> None:
        self.required_slots = workers, threads, gpu
        self.print_throttled, self.next_check_at = ThrottledPrinter(), time.monotonic() + LOST_WORKERS_CHECK_SECONDS

    def check_cluster(self) -> None:
        """Ask the cluster, every few seconds."""
        if time.monotonic() < self.next_check_at:
            return
        workers, threads, gpu = self.required_slots
        self.print_throttled(
            format_waiting_message(*self.required_slots) if total_slots(threads, gpu) < workers else ""
        )
        self.next_check_at = time.monotonic() + LOST_WORKERS_CHECK_SECONDS


def wait_for_slots(workers: int, threads: int, gpu: bool) -> None:
    """Return once so many slots are free at the same time; a cluster that may grow starts nodes for them.

    Ray Train by itself would wait a minute, in silence, and call it a failure. What was held is given back, for the
    workers to take it: the nodes stay meanwhile, as they do for any other pause between two jobs.
    """
    if slots_are_free(workers, threads, gpu):
        return
    each = {"CPU": threads, **({"GPU": 1} if gpu else {})}
    group = placement_group([each] * workers)  # all or none, as the workers are
    say, begun = ThrottledPrinter(), time.monotonic()
    try:
        while not group.wait(SLOT_POLL_SECONDS):
            say(format_waiting_message(workers, threads, gpu))
    finally:
        remove_placement_group(group)
    print(f"{format_slots(workers, threads, gpu)} there after {time.monotonic() - begun:.0f} s", flush=True)


def slots_are_free(workers: int, threads: int, gpu: bool) -> bool:
    """Whether they are free. What a group that has just ended held is so in a moment: no cluster is to grow for it."""
    until = time.monotonic() + SLOT_RELEASE_SECONDS
    while not (free := free_slots(threads, gpu) >= workers):
        if total_slots(threads, gpu) < workers or time.monotonic() > until:
            break
        time.sleep(SLOT_POLL_SECONDS / 5)
    return free


def format_waiting_message(workers: int, threads: int, gpu: bool) -> str:
    """What is waited for, in a sentence."""
    has, most = total_slots(threads, gpu), max_slots(threads, gpu)
    may = f" and may grow to {most}" if most > has else ""
    if has >= workers:  # the moment before they are ours, or other jobs' for long
        busy = max(0, has - free_slots(threads, gpu))
        return f"waiting for {format_slots(workers, threads, gpu)}: the cluster has {has}{may}, and {busy} are taken"
    return f"waiting for {format_slots(workers - has, threads, gpu, 'more ')}: the cluster has {has}{may}"
