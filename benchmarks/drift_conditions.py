"""Measure what several known conditions cost: run lengths, delays of alarms and time, on images of coloured discs.

python -m benchmarks.drift_conditions [--references 12] [--only lengths delays cost]
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.drift.charts.baseline import Baseline, fit_baseline
from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.charts.cusum import CusumState, StepSums, build_cusum_parameters, initial_cusum_state
from equipoise.drift.features.random_fourier import fit_random_features
from equipoise.drift.profiling.build_profile import LabelledOutputs, extract_features
from equipoise.drift.profiling.reference_examples import concat_conditions
from equipoise.drift.reference.false_alarms import find_and_reset_alarms
from equipoise.drift.reference.simulated_streams import LabelledFeatures, sum_table_rows
from equipoise.drift.reference.thresholds import Calibration, calibrate_thresholds
from tests.support.drift_conditions import apply_gains, blur, label_condition, predict_in_any_light, render_condition
from tests.support.drift_data import CLASSES

RUN_LENGTH = 2000.0  # images per false alarm that are asked for
REFERENCE_IMAGES, POOL_IMAGES = 600, 4000  # of each condition
STREAM_COUNT, STREAM_IMAGES, STEP_SIZE = 48, 4096, 16
CLEAN_IMAGES, MAX_DELAY_IMAGES = 512, 1024
RUN_IMAGES = 20.0  # images of one condition in a row, on average, where conditions are mixed


@dataclass(frozen=True, eq=False)
class CalibratedReference:
    """Baseline and thresholds of one or several conditions."""

    baseline: Baseline
    calibration: Calibration

    def start_charts(self) -> CusumState:
        """Create the charts of STREAM_COUNT streams."""
        layout = self.baseline.layout
        parameters = build_cusum_parameters(self.baseline.usual, condition_count=layout.condition_count)
        return initial_cusum_state(parameters, layout.statistic_count, layout.fourier_count, STREAM_COUNT)


@cache
def calibrate_reference(names: tuple[str, ...], seed: int, image_counts: tuple[int, ...] = ()) -> CalibratedReference:
    """Fit and calibrate a reference of the given conditions."""
    counts = image_counts or (REFERENCE_IMAGES,) * len(names)
    groups = [
        label_condition(name, count, 10_000 + 10 * seed + index)
        for index, (name, count) in enumerate(zip(names, counts, strict=True))
    ]
    random_fourier = fit_random_features(groups[0].features)
    features = concat_conditions([extract_features(group, random_fourier, 1.0) for group in groups])
    baseline = fit_baseline(features, CLASSES, random_fourier, 1.0, names)
    labels = np.concatenate([group.labels for group in groups])
    images = LabelledFeatures(baseline.assign_conditions(features), labels, features.conditions)
    return CalibratedReference(baseline, calibrate_thresholds(images, CLASSES, seed))


@dataclass(frozen=True, eq=False)
class ScoredPool:
    """Images that are in no reference, compared with a reference."""

    features: ImageFeatures
    scores: NDArray[np.float32]
    groups: NDArray[np.int64]
    """(images,) condition * classes + true class"""


def score_pool(baseline: Baseline, pool: list[LabelledOutputs]) -> ScoredPool:
    """Compare images, one item for each condition, with a baseline."""
    parts = [baseline.assign_conditions(extract_features(outputs, baseline.random_fourier, 1.0)) for outputs in pool]
    joined = concat_conditions(parts)
    assigned = baseline.assign_conditions(joined)
    groups = np.concatenate([index * CLASSES + outputs.labels for index, outputs in enumerate(pool)])
    return ScoredPool(assigned, baseline.usual.scores(assigned).astype(np.float32), groups)


def sum_steps(reference: CalibratedReference, pool: ScoredPool, indices: NDArray[np.int64]) -> StepSums:
    """Return the sums of one step, given (streams, step size) image indices."""
    cell_count = reference.baseline.layout.cell_count
    counts = (pool.features.cells[indices][..., None] == np.arange(cell_count)).sum(1).astype(float)
    fourier_sums = sum_table_rows(indices, pool.features.fourier_features)
    return StepSums(
        counts, sum_table_rows(indices, pool.scores), fourier_sums - counts @ reference.baseline.usual.waves
    )


class StreamKind(NamedTuple):
    """How the streams of a row choose conditions and classes."""

    name: str
    conditions: tuple[int, ...]
    """indices of the conditions shown"""
    condition_run: float = 1.0
    """images of one condition in a row, on average"""
    class_run: float = 1.0
    """images of one class in a row, on average; a run of a class ends with that of its condition"""


def generate_steps(
    pool: ScoredPool, kind: StreamKind, images: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Yield (streams, step size) image indices of one step after another."""
    members = [np.flatnonzero(pool.groups == group) for group in range(int(pool.groups.max()) + 1)]
    condition = rng.choice(kind.conditions, STREAM_COUNT)
    label = rng.integers(0, CLASSES, STREAM_COUNT)
    for _ in range(images // STEP_SIZE):
        indices = np.empty((STREAM_COUNT, STEP_SIZE), np.int64)
        for position in range(STEP_SIZE):
            new_condition = rng.random(STREAM_COUNT) < 1 / kind.condition_run
            new_label = rng.random(STREAM_COUNT) < 1 / kind.class_run
            new_label |= new_condition & (len(kind.conditions) > 1)
            condition = np.where(new_condition, rng.choice(kind.conditions, STREAM_COUNT), condition)
            label = np.where(new_label, rng.integers(0, CLASSES, STREAM_COUNT), label)
            draws = rng.random(STREAM_COUNT)
            groups = condition * CLASSES + label
            indices[:, position] = [
                members[group][int(draw * len(members[group]))] for group, draw in zip(groups, draws, strict=True)
            ]
        yield indices


def list_stream_kinds(names: tuple[str, ...]) -> list[StreamKind]:
    """Return the kinds of streams for which run lengths are measured."""
    everything = tuple(range(len(names)))
    kinds = [StreamKind(f"{name} alone", (index,)) for index, name in enumerate(names)]
    if len(names) == 1:
        return [*kinds, StreamKind("runs of one class", everything, 1.0, RUN_IMAGES)]
    return [
        *kinds,
        StreamKind("mixed image by image", everything),
        StreamKind("mixed in runs of one condition", everything, RUN_IMAGES),
        StreamKind("mixed in runs of one condition and class", everything, RUN_IMAGES, RUN_IMAGES),
    ]


def measure_run_lengths(names: tuple[str, ...], references: int) -> list[str]:
    """Return rows of images per false alarm over what was asked for, for each kind of stream."""
    pool = [label_condition(name, POOL_IMAGES, 500 + index) for index, name in enumerate(names)]
    alarms: dict[str, list[int]] = {kind.name: [] for kind in list_stream_kinds(names)}
    for seed in range(references):
        reference = calibrate_reference(names, seed)
        scored = score_pool(reference.baseline, pool)
        for kind in list_stream_kinds(names):
            alarms[kind.name].append(count_alarms(reference, scored, kind, seed))
    expected = STREAM_COUNT * STREAM_IMAGES / RUN_LENGTH
    lines = []
    for name, counts in alarms.items():
        ratios = expected / np.maximum(counts, 1)
        mean = expected / max(np.mean(counts), 1e-9)
        lines.append(
            f"| {', '.join(names)} | {name} | {mean:.2f} | {ratios.min():.2f}, {ratios.max():.2f} | {sum(counts)} |"
        )
    return lines


def count_alarms(reference: CalibratedReference, pool: ScoredPool, kind: StreamKind, seed: int) -> int:
    """Count false alarms; the charts of a stream are reset after its alarm."""
    rng, state, ages, alarms = np.random.default_rng(seed), reference.start_charts(), np.zeros(STREAM_COUNT), 0
    for indices in generate_steps(pool, kind, STREAM_IMAGES, rng):
        state.update(sum_steps(reference, pool, indices))
        alarms += len(find_and_reset_alarms(state, reference.calibration, RUN_LENGTH, STEP_SIZE, ages)[0])
    return alarms


def measure_delays(references: int) -> list[str]:
    """Return the table of images from a change to its alarm, with one, two and three known conditions."""
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "blur by a tenth": lambda images: (0.9 * images + 0.1 * blur(images)).round().to(torch.uint8),
        "darker by 2 %": lambda images: apply_gains(images, (0.98, 0.98, 0.98)),
        "greener by 2 %": lambda images: apply_gains(images, (1.0, 1.02, 1.0)),
        "darker by a tenth": lambda images: apply_gains(images, (0.9, 0.9, 0.9)),
        "halfway to warm": lambda images: apply_gains(images, (1.12, 1.0, 0.8)),
    }
    lines = ["| change | of | known | median delay | 90 % | not found |", "|--|--|--|--:|--:|--:|"]
    for change_name, change in changes.items():
        for shown in ("plain", "warm"):
            for names in ((shown,), ("plain", "warm"), ("plain", "warm", "dark")):
                if (change_name, shown) == ("halfway to warm", "warm"):
                    continue
                delays = np.concatenate([time_alarms(names, shown, change, seed) for seed in range(references)])
                median, late = np.median(delays), np.quantile(delays, 0.9)
                missed = int((delays >= MAX_DELAY_IMAGES).sum())
                lines.append(f"| {change_name} | {shown} | {', '.join(names)} | {median:.0f} | {late:.0f} | {missed} |")
    return lines


def time_alarms(
    names: tuple[str, ...], shown: str, change: Callable[[Tensor], Tensor], seed: int
) -> NDArray[np.float64]:
    """Return the images from a change of one condition to the alarm, for each stream that was quiet before."""
    reference, rng = calibrate_reference(names, seed), np.random.default_rng(seed)
    images, labels = render_condition(shown, 1500, 900)
    before, after = (predict_in_any_light(shown_images, labels) for shown_images in (images, change(images)))
    pool = score_pool(reference.baseline, [before, after])
    state, ages, delays = reference.start_charts(), np.zeros(STREAM_COUNT), np.full(STREAM_COUNT, np.nan)
    for indices in generate_steps(pool, StreamKind("before", (0,)), CLEAN_IMAGES, rng):
        state.update(sum_steps(reference, pool, indices))
        find_and_reset_alarms(state, reference.calibration, 10 * RUN_LENGTH, STEP_SIZE, ages)
    for step, indices in enumerate(generate_steps(pool, StreamKind("after", (1,)), MAX_DELAY_IMAGES, rng)):
        state.update(sum_steps(reference, pool, indices))
        scale = np.full(STREAM_COUNT, float(STEP_SIZE)), state.runs.mean_run_length()
        threshold = reference.calibration.threshold(10 * RUN_LENGTH, *scale)
        over = reference.calibration.scale_values(state.values(), *scale).max(1) >= threshold
        delays = np.where(np.isnan(delays) & over, (step + 1) * STEP_SIZE, delays)
    return np.nan_to_num(delays, nan=MAX_DELAY_IMAGES)


def measure_cost(references: int) -> list[str]:
    """Return the table of microseconds an image in a replica, and a step in the monitor."""
    del references
    lines = ["| known | us an image: features | sums | us a step of one stream |", "|--|--:|--:|--:|"]
    batch = label_condition("plain", STEP_SIZE, 7)
    for names in (("plain",), ("plain", "warm"), ("plain", "warm", "dark")):
        reference = calibrate_reference(names, 0)
        baseline = reference.baseline
        arguments = batch.pictures.numpy(), batch.logits, batch.features
        extracted = baseline.extract_features(*arguments)
        layout = baseline.layout
        parameters = build_cusum_parameters(baseline.usual, condition_count=layout.condition_count)
        state = initial_cusum_state(parameters, layout.statistic_count, layout.fourier_count)
        row = baseline.sum_features(extracted)
        counts, scores, waves = (layout.read_part(row, name)[None] for name in ("cells", "scores", "waves"))
        step = StepSums(counts, scores, waves - counts @ baseline.usual.waves)
        costs = [
            median_seconds(lambda: baseline.extract_features(*arguments)) / STEP_SIZE,  # noqa: B023 - called at once
            median_seconds(lambda: baseline.sum_features(extracted)) / STEP_SIZE,  # noqa: B023
            median_seconds(lambda: (state.update(step), state.values())),  # noqa: B023
        ]
        lines.append(f"| {', '.join(names)} | {' | '.join(f'{seconds * 1e6:.1f}' for seconds in costs)} |")
    return lines


def median_seconds(action: Callable[[], object], times: int = 400) -> float:
    """Return the median CPU seconds of an action."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return float(np.median(seconds))


def measure_all_run_lengths(references: int) -> list[str]:
    """Return the tables of run lengths with one, two and three conditions."""
    lines = ["| conditions | stream | realised / asked | least, most of a reference | alarms |", "|--|--|--:|--:|--:|"]
    for names in (("plain",), ("plain", "warm"), ("plain", "warm", "dark")):
        lines += measure_run_lengths(names, references)
        print(f"{', '.join(names)}: done", file=sys.stderr, flush=True)
    return lines


TABLES = {"lengths": measure_all_run_lengths, "delays": measure_delays, "cost": measure_cost}


def main() -> None:
    """Measure and print the selected tables."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--references", type=int, default=12, help="number of references over which is averaged")
    parser.add_argument("--only", nargs="*", choices=[*TABLES], help="names of the tables to print; all by default")
    options = parser.parse_args()
    for name, build_table in TABLES.items():
        if not options.only or name in options.only:
            print(f"\n{name}\n", flush=True)
            print("\n".join(build_table(options.references)), flush=True)


if __name__ == "__main__":
    main()
