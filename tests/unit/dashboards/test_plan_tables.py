"""Tables of a plan: units, order of the rows, best learning rates, and plans in words."""

import numpy as np
import pandas as pd
import pytest

from dashboards.plan_tables import (
    best_lr,
    candidate_plans,
    format_cluster_shape,
    format_plans,
    group_by_cluster_shape,
    lr_ratios,
    mark_best_lr,
    measured_step_times,
    predicted_examples,
    predicted_step_seconds,
    predicted_step_times,
    settings_to_table,
)
from equipoise.planning.sections.examples_types import ExamplesPrediction
from equipoise.planning.sections.step_time_types import StepTimePrediction
from tests.support.plan_documents import (
    build_document,
    build_examples,
    build_option,
    build_step_prediction,
    build_step_times,
)

UNKNOWN_STEP = StepTimePrediction(nodes=1, workers=8, batch=16, seconds=None, low=None, high=None, measured=False)


def build_trials(*rows):
    """Build trials from global batch, learning rate, examples and whether they reached the target."""
    return pd.DataFrame(rows, columns=["global_batch", "lr", "examples", "reached"]).assign(seed=0)


def test_predicted_times_are_per_example_of_the_global_batch():
    document = build_document(system=build_step_times(build_step_prediction(4, 25, 2.0), UNKNOWN_STEP))
    (row,) = predicted_step_times(document).to_dict("records")
    assert (row["workers"], row["batch"], row["global_batch"]) == (4, 25, 100)
    assert (row["seconds"], row["low"], row["high"]) == pytest.approx((0.02, 0.01, 0.04))
    assert predicted_step_seconds(document).seconds.tolist() == [2.0]


def test_document_without_fits_has_no_predictions():
    assert predicted_step_times(build_document()).empty
    assert predicted_examples(build_document()).empty
    assert candidate_plans(build_document()).empty


def test_measured_time_is_the_median_of_its_setting():
    rows = [(1, 2, 10, seconds) for seconds in (0.1, 0.4, 0.2)] + [(2, 2, 10, 0.8)]
    table = measured_step_times(pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds"]))
    assert table.global_batch.tolist() == [20, 20]
    assert table.seconds.tolist() == pytest.approx([0.2 / 20, 0.8 / 20])


def test_batches_without_predicted_examples_are_left_out():
    unknown = ExamplesPrediction(global_batch=64, examples=None, low=None, high=None, lr=None)
    examples = build_examples((32, 900.0))
    document = build_document(statistical=build_examples(predictions=(*examples.predictions, unknown)))
    (row,) = predicted_examples(document).to_dict("records")
    assert row == {"global_batch": 32, "examples": 900.0, "low": 450.0, "high": 1800.0, "lr": 0.1}


def test_fewest_examples_make_a_learning_rate_the_best_of_its_batch():
    trials = build_trials((32, 0.1, 500, 1), (32, 0.2, 400, 1), (64, 0.1, 600, 1), (64, 0.2, 700, 1))
    assert mark_best_lr(trials).best.tolist() == [False, True, True, False]


def test_rate_whose_trials_reached_the_target_beats_one_whose_did_not():
    assert best_lr(build_trials((32, 0.1, 900, 1), (32, 0.2, 100, 0), (32, 0.2, 100, 1))) == 0.1
    assert best_lr(build_trials((32, 0.1, 900, 0), (32, 0.2, 100, 0))) == 0.2


def test_trials_of_a_rate_count_by_their_geometric_mean():
    trials = build_trials((32, 0.1, 100, 1), (32, 0.1, 900, 1), (32, 0.2, 310, 1), (32, 0.2, 310, 1))
    assert best_lr(trials) == 0.1  # 300 on geometric average, 500 on the arithmetic one


def test_rate_that_was_not_recorded_counts_as_zero():
    marked = mark_best_lr(build_trials((32, "", 100, 1), (64, "0.2", 100, 1)))
    assert marked.lr.tolist() == [0.0, 0.2]
    assert marked.best.all()
    assert lr_ratios(build_trials((32, "", 100, 1))).empty


def test_examples_of_a_rate_are_relative_to_the_best_of_its_batch():
    trials = build_trials(
        *((32, 0.1, 300, 1), (32, 0.2, 100, 1), (32, 0.2, 400, 1), (32, 0.4, 800, 0), (32, 0.4, 800, 1)),
        *((64, 0.1, 50, 1), (64, 0.2, 75, 1)),
    )
    rows = lr_ratios(trials).to_dict("list")
    assert rows["global_batch"] == [32, 32, 32, 64, 64]
    assert rows["lr"] == [0.1, 0.2, 0.4, 0.1, 0.2]
    assert rows["more"] == pytest.approx([1.5, 1.0, 4.0, 1.0, 1.5])
    assert rows["reached"] == [1, 1, 0.5, 1, 1]
    assert rows["trials"] == [1, 2, 2, 1, 1]
    assert rows["best"] == [False, True, False, True, False]
    assert rows["inside"] == [True, True, True, False, False]


@pytest.mark.parametrize("best", [0.1, 0.4])
def test_best_rate_at_either_end_is_not_inside(best):
    trials = build_trials(*((32, rate, 100 if rate == best else 200, 1) for rate in (0.1, 0.2, 0.4)))
    assert not lr_ratios(trials).inside.any()


def test_settings_are_rows_with_their_interval_and_cost():
    (row,) = settings_to_table([build_option(workers=4, batch=8, seconds=10.0, lr=None)]).to_dict("records")
    assert row == {
        **{"nodes": 1, "workers": 4, "batch": 8, "global_batch": 32, "lr": None},
        **{"seconds": 10.0, "low": 8.0, "high": 12.0},
        **{"worker_seconds": 40.0, "measured": True, "binding": "compute"},
    }


def test_shapes_are_in_order_and_their_rows_by_global_batch():
    rows = [(2, 4, 64), (1, 4, 32), (1, 2, 16), (1, 4, 16), (1, 4, 64), (2, 4, 8)]
    groups = group_by_cluster_shape(pd.DataFrame(rows, columns=["nodes", "workers", "global_batch"]))
    assert {shape: table.global_batch.tolist() for shape, table in groups.items()} == {
        (1, 2): [16],
        (1, 4): [16, 32, 64],
        (2, 4): [8, 64],
    }
    assert [*groups] == [(1, 2), (1, 4), (2, 4)]


def test_cluster_shapes_and_plans_in_words():
    assert format_cluster_shape(1, 1) == "1 worker"
    assert format_cluster_shape(1, 4) == "4 workers"
    assert format_cluster_shape(2, 4) == "4 workers on 2 nodes"
    options = [build_option(lr=0.12345), build_option(nodes=2, workers=4, lr=None), build_option(lr=np.nan)]
    assert format_plans(settings_to_table(options)) == [
        "2 workers x 16, lr 0.123",
        "4 workers on 2 nodes x 16",
        "2 workers x 16",
    ]
