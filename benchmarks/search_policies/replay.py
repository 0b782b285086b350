"""The search of Equipoise, replayed on recorded trials, two at a time as on two slots."""

import heapq

import numpy as np
import pandas as pd

from benchmarks.search_policies.ground_truth import Choice, GroundTruth, find_first_lr
from equipoise.planning.examples_to_target import ExamplesCurve, fit_examples_curve
from equipoise.planning.plan import ClusterShape, enumerate_options, rank_options
from equipoise.planning.search import GRID_LR_REACH_OCTAVES, PRUNE_FACTOR, Search, Suggestion
from equipoise.planning.step_time_fit import StepTimeFit
from jobs.ray_tune.fastest_workers import FastestWorkers
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS

SLOT_COUNT = 2
LADDER_SECONDS = 1.0  # seconds per worker to time one batch size: five laps of 0.1 s after the warm-up


def replay_search(
    truth: GroundTruth, seen: list[int], fastest: FastestWorkers
) -> tuple[pd.DataFrame, list[float], float]:
    """Return the trials that the search suggests, when each ended, and the worker-seconds of all and of timing."""
    search = Search(sorted(truth.lrs_by_batch), find_first_lr(truth), fastest.step_seconds)
    search.lr_reach_octaves = GRID_LR_REACH_OCTAVES  # nothing was recorded further out
    finished, running = pd.DataFrame([], columns=FINISHED_TRIAL_COLUMNS), []
    spent = LADDER_SECONDS * sum(workers for workers, _ in truth.seconds_by_shape.index)
    now, count, ends = 0.0, 0, []
    while True:
        while len(running) < SLOT_COUNT and (
            suggestion := search.suggest(finished, [suggested for *_, suggested, _ in running])
        ):
            row = replay_trial(truth, suggestion, seen, finished, search)
            seconds = row[3] / suggestion.global_batch * truth.one_worker_step_seconds(suggestion.global_batch)
            spent, count = spent + seconds, count + 1
            heapq.heappush(running, (now + seconds, count, suggestion, row))
        if not running:
            return finished, ends, spent
        now, _, _, row = heapq.heappop(running)
        ends.append(now)
        rows = pd.DataFrame([row], columns=FINISHED_TRIAL_COLUMNS)
        finished = pd.concat([finished, rows], ignore_index=True) if len(finished) else rows


def replay_trial(
    truth: GroundTruth, suggestion: Suggestion, seen: list[int], finished: pd.DataFrame, search: Search
) -> tuple[int, float, int, float, int]:
    """Return the result row of a trial, pruned where it takes PRUNE_FACTOR times as long as the best setting."""
    examples, reached = truth.read_trial(suggestion.global_batch, suggestion.lr, seen[suggestion.seed % len(seen)])
    best = search.rank_settings(finished)[0].seconds if len(finished) else np.inf
    limit = PRUNE_FACTOR * best * suggestion.global_batch / search.step_seconds(suggestion.global_batch)
    return (*suggestion, min(examples, limit), int(reached and examples <= limit))


def choose_by_search(truth: GroundTruth, seen: list[int], draw: int) -> tuple[Choice, float]:
    """Return what a sweep that measured one of the ladders recommends, and its cost in worker-seconds."""
    step_time_fit = truth.fit_ladder(draw)
    finished, _, spent = replay_search(truth, seen, FastestWorkers(step_time_fit))
    return choose_plan(truth, step_time_fit, fit_examples_curve(finished)), spent


def choose_plan(truth: GroundTruth, step_time_fit: StepTimeFit, curve: ExamplesCurve) -> Choice:
    """Return the setting that both fits recommend, among the batches of the trials."""
    shapes = [ClusterShape(1, workers) for workers in truth.seconds_by_shape.index.unique("workers")]
    options = enumerate_options(step_time_fit, curve, shapes, map(int, curve.batch_summary.index))
    best = rank_options(options)[0]
    return Choice(best.workers, best.global_batch, float(best.lr or 0))
