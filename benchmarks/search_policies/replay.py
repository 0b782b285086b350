"""Our own search, replayed on recorded trials: two at a time, as on two slots."""

import heapq

import numpy as np
import pandas as pd

from benchmarks.search_policies.ground_truth import Choice, Truth, first_rate
from equipoise.planning.examples_to_target import fit_examples_curve
from equipoise.planning.plan import ClusterShape, enumerate_options, rank_options
from equipoise.planning.search import GRID_LR_REACH_OCTAVES, PRUNE_FACTOR, Search, Suggestion
from jobs.ray_tune.fastest_workers import FastestWorkers
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS

SLOTS = 2
LADDER_SECONDS = 1.0  # that timing a batch takes a worker: five laps of 0.1 s, and what settles first


def searched(truth: Truth, seen: list[int], fastest: FastestWorkers) -> tuple[pd.DataFrame, float]:
    """The trials that the search asks for, and the worker-seconds that they and the timing of steps take."""
    search = Search(sorted(truth.rates), first_rate(truth), fastest.step_seconds)
    search.lr_reach_octaves = GRID_LR_REACH_OCTAVES  # further out nothing was recorded
    finished, running = pd.DataFrame([], columns=FINISHED_TRIAL_COLUMNS), []
    spent = LADDER_SECONDS * sum(workers for workers, _ in truth.steps.index)
    now, count = 0.0, 0
    while True:
        while len(running) < SLOTS and (asked := search.suggest(finished, [one for *_, one, _ in running])):
            row = outcome(truth, asked, seen, finished, search)
            seconds = row[3] / asked.global_batch * truth.alone(asked.global_batch)
            spent, count = spent + seconds, count + 1
            heapq.heappush(running, (now + seconds, count, asked, row))
        if not running:
            return finished, spent
        now, _, _, row = heapq.heappop(running)
        rows = pd.DataFrame([row], columns=FINISHED_TRIAL_COLUMNS)
        finished = pd.concat([finished, rows], ignore_index=True) if len(finished) else rows


def outcome(
    truth: Truth, asked: Suggestion, seen: list[int], finished: pd.DataFrame, search: Search
) -> tuple[int, float, int, float, int]:
    """What a trial shows: cut off where it has taken longer than the best one in all."""
    examples, reached = truth.trial(asked.global_batch, asked.lr, seen[asked.seed % len(seen)])
    best = search.rank_settings(finished)[0].seconds if len(finished) else np.inf
    limit = PRUNE_FACTOR * best * asked.global_batch / search.step_seconds(asked.global_batch)
    return (*asked, min(examples, limit), int(reached and examples <= limit))


def ours(truth: Truth, seen: list[int], draw: int) -> tuple[Choice, float]:
    """What a sweep recommends that measured one of the ladders, and its cost in worker-seconds."""
    timed = truth.ladder(draw)
    finished, spent = searched(truth, seen, FastestWorkers(timed))
    curve = fit_examples_curve(finished)
    places = [ClusterShape(1, workers) for workers in truth.steps.index.unique("workers")]
    found = enumerate_options(timed, curve, places, map(int, curve.batch_summary.index))
    first = rank_options(found)[0]
    return Choice(first.workers, first.global_batch, float(first.lr or 0)), spent
