"""Warning of asynchronous updates of a model with batch normalisation."""

import pytest

from equipoise.config import TrainConfig
from equipoise.training.store_steps.batch_norm import describe_stale_statistics
from equipoise.workloads import load_workload
from jobs.ray_train.run_notes import warn_of_statistics

WITH_BATCH_NORM = "tests.support.workloads:with_batch_norm"


@pytest.mark.parametrize(
    ("sync", "workload", "is_warned"),
    [("async:2", WITH_BATCH_NORM, True), ("server", WITH_BATCH_NORM, False), ("async:2", "digits", False)],
)
def test_stale_statistics_of_batch_normalisation_are_warned_of(sync, workload, is_warned):
    config = TrainConfig(workload=workload, workers=2, sync=sync)
    warning = warn_of_statistics(config, load_workload(config))
    assert ("--sync async:2 running statistics" in warning) is is_warned
    assert is_warned or warning == ""


def test_frozen_batch_normalisation_has_no_statistics_to_warn_of():
    config = TrainConfig(workload=WITH_BATCH_NORM, workers=2, sync="async:2")
    model = load_workload(config).model()
    assert describe_stale_statistics(config, model, [model[0]])
    assert describe_stale_statistics(config, model, [model[:2]]) == ""
