"""Tests of text sweeps replayed on a recorded grid: how far from the best their plans are, and the critical batch."""

import numpy as np
import pytest

from benchmarks.search_policies.recorded_curves import DATA_FOLDER, RecordedCurves
from benchmarks.search_policies.replay_budget import ReplayedSweep, SweepSettings
from benchmarks.text_plans import MAX_REGRET, find_critical_batch, measure_regret, split_seeds
from equipoise.planning.examples_to_target import fit_examples_curve

pytestmark = pytest.mark.slow
REPLAY_COUNT = 6
TARGET = 2.4


@pytest.mark.parametrize("budget", [120, 150])
def test_sweep_plans_close_to_the_best_of_the_grid_and_finds_its_critical_batch(budget):
    truth = RecordedCurves(DATA_FOLDER / "text", TARGET)
    critical_batch, *_ = fit_examples_curve(truth.build_runs(TARGET)).critical_batch
    regrets, covered = [], []
    for draw in range(REPLAY_COUNT):
        seen, others = split_seeds(truth, draw)
        sweep = ReplayedSweep(truth, SweepSettings(targets=(TARGET,), budget_seconds=budget), seen, draw)
        sweep.run()
        curve = sweep.fit_targets()[TARGET]
        regrets.append(measure_regret(truth, sweep.build_plan(curve), TARGET, seen, others))
        interval = find_critical_batch(curve)
        covered.append(interval is not None and interval[1] <= critical_batch <= interval[2])
    assert np.max(regrets) <= MAX_REGRET
    assert np.mean(covered) >= 0.8


def test_trials_to_a_hard_target_show_the_critical_batch_of_an_easier_one():
    truth = RecordedCurves(DATA_FOLDER / "text", 2.0)
    critical_batch, *_ = fit_examples_curve(truth.build_runs(TARGET)).critical_batch
    seen, _ = split_seeds(truth, 0)
    sweep = ReplayedSweep(truth, SweepSettings(targets=(2.4, 2.2, 2.0), budget_seconds=300), seen, 0)
    sweep.run()
    _, low, high = find_critical_batch(sweep.fit_targets()[TARGET])
    assert low <= critical_batch <= high
