"""Crossings of several targets, read from the laps of trials to the hardest one."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.runs.record import Lap, Record, examples_at_target
from equipoise.runs.target import Target
from equipoise.storage.atomic import write_json
from jobs.ray_tune.target_crossings import describe_early_crossings, list_crossings, write_crossings
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS, record_to_row, trial_file_stem

FALLING = Target(value=2.0, lower_is_better=True)
TARGETS = FALLING.list_targets([2.0, 2.4, 2.2])


def build_trial(metrics, status="reached_target", target=FALLING, **options):
    """Build the record of a trial with an evaluation every 100 examples."""
    laps = [
        Lap(step=index, steps=1, seen=100 * index, examples=100, workers=1, seconds=1.0, metric=metric)
        for index, metric in enumerate(metrics, 1)
    ]
    config = TrainConfig(workload="digits", **{"batch_size": 8, "lr": 0.1} | options)
    crossing = examples_at_target(laps, target) if status == "reached_target" else None
    return Record(
        config=config,
        machine=HardwareFacts(),
        laps=laps,
        status=status,
        target=target.value,
        lower_is_better=target.lower_is_better,
        examples_to_target=crossing,
        test=None,
    )


def list_rows(*trials, targets=TARGETS):
    table = list_crossings(trials, targets)
    return list(table[["target", "examples", "reached"]].itertuples(index=False, name=None))


def test_targets_are_sorted_from_the_easiest_and_counted_once():
    assert [target.value for target in TARGETS] == [2.4, 2.2, 2.0]
    rising = Target(value=None).list_targets([0.9, 0.5, 0.9])
    assert [target.value for target in rising] == [0.5, 0.9]
    assert FALLING.list_targets([]) == (FALLING,)


def test_each_target_has_its_own_crossing():
    assert list_rows(build_trial([3.0, 2.5, 2.3, 1.9])) == [
        (2.4, pytest.approx(250), 1),
        (2.2, pytest.approx(325), 1),
        (2.0, pytest.approx(375), 1),
    ]


def test_pruned_trial_counts_for_the_targets_that_it_has_passed_and_as_censored_for_the_others():
    (first, *others) = list_rows(build_trial([3.0, 2.3], status="pruned"))
    assert first == (2.4, pytest.approx(100 + 100 * 6 / 7), 1) and others == [(2.2, 200, 0), (2.0, 200, 0)]


def test_trial_that_was_cut_off_counts_for_the_targets_that_it_has_passed_alone():
    assert list_rows(build_trial([3.0, 2.4], status="cut_off")) == [(2.4, 200, 1)]
    assert list_rows(build_trial([3.0, 2.5], status="running")) == []


def test_trial_that_failed_in_its_first_lap_has_seen_a_batch():
    assert list_rows(build_trial([], status="failed"))[0] == (2.4, 8, 0)


@pytest.mark.parametrize("seed", range(10))
def test_crossings_of_several_targets_are_those_of_sweeps_to_each_alone(seed):
    rng = np.random.default_rng(seed)
    walks = [3 - np.cumsum(rng.uniform(-0.1, 0.3, 8)) for _ in range(6)]
    trials = [build_trial(walk, "pruned", seed=index) for index, walk in enumerate(walks)]
    together = list_crossings(trials, TARGETS)
    for target in TARGETS:
        ended = [
            build_trial(walk, "reached_target" if (walk <= target.value).any() else "pruned", target, seed=index)
            for index, walk in enumerate(walks)
        ]
        alone = pd.DataFrame(map(record_to_row, ended), columns=FINISHED_TRIAL_COLUMNS)
        several = together[together.target == target.value].drop(columns="target").reset_index(drop=True)
        pd.testing.assert_frame_equal(several, alone)
    by_trial = together.groupby("seed").examples
    assert by_trial.apply(lambda examples: examples.is_monotonic_increasing).all()


def test_hardest_target_has_the_rows_of_the_search():
    trials = [build_trial([3.0, 2.5, 1.9], seed=0), build_trial([3.0, 2.1], "max_examples", seed=1)]
    hardest = list_crossings(trials, TARGETS)
    rows = hardest[hardest.target == 2.0][FINISHED_TRIAL_COLUMNS].itertuples(index=False, name=None)
    assert list(rows) == list(map(record_to_row, trials))


def test_table_is_written_for_several_targets_and_removed_for_one(tmp_path):
    folder = tmp_path / "trials"
    folder.mkdir()
    for trial in (build_trial([3.0, 1.9]), build_trial([3.0, 1.9], batch_size=16)):
        write_json(folder / f"{trial_file_stem(trial.config)}.json", trial.to_json())
    write_crossings(folder, [8], TARGETS)
    table = pd.read_csv(tmp_path / "targets.csv")
    assert table.target.tolist() == [2.4, 2.2, 2.0] and set(table.global_batch) == {8}
    write_crossings(folder, [8], TARGETS[-1:])
    assert not (tmp_path / "targets.csv").exists()
    write_crossings(folder, [8], TARGETS[-1:])


def test_target_that_most_trials_pass_before_their_first_evaluation_is_named():
    trials = [build_trial([first, 1.9]) for first in (2.3, 2.3, 2.6)]
    (note,) = describe_early_crossings([*trials, replace(trials[0], laps=[])], TARGETS)
    assert "2 of 3 trials" in note and "at most 2.4" in note
