"""Room for workers: asked of the cluster as a whole and waited for, while it is said what lacks."""

import time

from ray.util.placement_group import placement_group, remove_placement_group

from jobs.cluster import resources as cluster

LOOK_SECONDS, LACK_SECONDS, SAY_SECONDS = 1.0, 5.0, 60.0
GIVEN_BACK_SECONDS = 5.0


class Said:
    """What is said once, and again each minute that it lasts."""

    def __init__(self) -> None:
        self.text, self.at = "", 0.0

    def __call__(self, text: str) -> None:
        """Say it if it is news."""
        now = time.monotonic()
        if text and (text != self.text or now > self.at + SAY_SECONDS):
            print(text, flush=True)
            self.at = now
        self.text = text


class Lost:
    """Says of a run under way that it waits, where nodes were lost and fewer workers are left than it takes."""

    def __init__(self, workers: int, threads: int, gpu: bool) -> None:
        self.asked = workers, threads, gpu
        self.say, self.due = Said(), time.monotonic() + LACK_SECONDS

    def look(self) -> None:
        """Ask the cluster, every few seconds."""
        if time.monotonic() < self.due:
            return
        workers, threads, gpu = self.asked
        self.say(lacking(*self.asked) if cluster.held(threads, gpu) < workers else "")
        self.due = time.monotonic() + LACK_SECONDS


def wait_for(workers: int, threads: int, gpu: bool) -> None:
    """Return once so many slots are free at the same time; a cluster that may grow starts nodes for them.

    Ray Train by itself would wait a minute, in silence, and call it a failure. What was held is given back, for the
    workers to take it: the nodes stay meanwhile, as they do for any other pause between two jobs.
    """
    if found(workers, threads, gpu):
        return
    each = {"CPU": threads, **({"GPU": 1} if gpu else {})}
    group = placement_group([each] * workers)  # all or none, as the workers are
    say, begun = Said(), time.monotonic()
    try:
        while not group.wait(LOOK_SECONDS):
            say(lacking(workers, threads, gpu))
    finally:
        remove_placement_group(group)
    print(f"{cluster.count(workers, threads, gpu)} there after {time.monotonic() - begun:.0f} s", flush=True)


def found(workers: int, threads: int, gpu: bool) -> bool:
    """Whether they are free. What a group that has just ended held is so in a moment: no cluster is to grow for it."""
    until = time.monotonic() + GIVEN_BACK_SECONDS
    while not (free := cluster.free(threads, gpu) >= workers):
        if cluster.held(threads, gpu) < workers or time.monotonic() > until:
            break
        time.sleep(LOOK_SECONDS / 5)
    return free


def lacking(workers: int, threads: int, gpu: bool) -> str:
    """What is waited for, in a sentence."""
    has, most = cluster.held(threads, gpu), cluster.most(threads, gpu)
    may = f" and may grow to {most}" if most > has else ""
    if has >= workers:  # the moment before they are ours, or other jobs' for long
        busy = max(0, has - cluster.free(threads, gpu))
        return f"waiting for {cluster.count(workers, threads, gpu)}: the cluster has {has}{may}, and {busy} are taken"
    return f"waiting for {cluster.count(workers - has, threads, gpu, 'more ')}: the cluster has {has}{may}"
