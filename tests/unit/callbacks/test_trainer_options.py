"""Tests of what callbacks report: the metric of an evaluation of its own data set, while the training goes on."""

import pytest
import torch

from equipoise.callbacks.trainer_options import TrainerOptions
from equipoise.observation.step_sampling import MeasurementCadence
from tests.support.errors import raises_code
from tests.support.observed_loops import BATCH, build_small_model, draw_batches, take_steps


@pytest.fixture
def start(tmp_path):
    """Start to observe a loop of two steps whose trainer reports a metric."""

    def start_loop(metric):
        model = build_small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        options = TrainerOptions(tmp_path / "run", None, metric, None, False, BATCH, MeasurementCadence())
        observer = options.start_observer(model, optimizer, BATCH, follow_forward=True)
        take_steps(model, optimizer, draw_batches(2))
        return options, observer

    return start_loop


def test_metric_of_one_of_several_data_sets_is_reported(start):
    options, observer = start("eval_far_accuracy")
    options.report_metric(observer, {"eval_near_accuracy": 0.5, "eval_near_runtime": 1.0})
    options.report_metric(observer, {"eval_far_accuracy": 0.25, "eval_far_runtime": 1.0})
    options.end_observation(observer)
    options.report_metric(observer, {"test_accuracy": 0.75, "test_runtime": 1.0})
    assert [lap.metric for lap in observer.laps] == [lap.metric for lap in observer.close().laps] == [0.25]


def test_metric_that_its_own_evaluation_does_not_have_is_refused(start):
    options, observer = start("eval_accuracy")
    with raises_code("option-choice", "eval_loss"):
        options.report_metric(observer, {"eval_loss": 0.5, "eval_runtime": 1.0})
    observer.close()


def test_metric_that_no_evaluation_had_is_a_warning(start):
    options, observer = start("eval_accuracy")
    options.report_metric(observer, {"eval_near_accuracy": 0.5, "eval_near_runtime": 1.0})
    with pytest.warns(RuntimeWarning, match="no evaluation reported the metric eval_accuracy"):
        options.end_observation(observer)
