"""Plans from recorded sweeps stay what they were."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from equipoise.planning.build_document import build_plan_document, read_request
from equipoise.planning.plan import ClusterShape
from tests.support.recorded import assert_as_recorded

SWEEPS = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize("name", ["digits", "patches"])
def test_plan_of_a_recorded_sweep_is_as_recorded(name):
    tables = {"system": SWEEPS / name / "system.csv", "statistical": SWEEPS / name / "statistical.csv"}
    shapes = (ClusterShape(1, 8), ClusterShape(2, 8), ClusterShape(4, 16))
    document = build_plan_document(replace(read_request(**tables), cluster_shapes=shapes))
    statistical, system = document.statistical, document.system
    options = sorted(document.options, key=lambda option: (option.workers, option.nodes, option.batch))
    values = {
        "plan": describe_option(document.plan),
        "runner up": describe_option(document.runner_up),
        "options": np.concatenate([describe_option(option) for option in options]),
        "front": np.concatenate([describe_option(option) for option in document.front]),
        "critical batch": [statistical.critical_batch.value, statistical.critical_batch.low],
        "min examples": [statistical.min_examples.value, statistical.min_examples.high],
        "step time": [*system.parameters.values(), system.error],
        "warnings": len(document.warnings),
    }
    assert_as_recorded(f"plan-{name}", values)


def describe_option(option):
    numbers = [option.nodes, option.workers, option.batch, option.lr or 0.0, option.examples, option.step.seconds]
    return [*numbers, option.seconds.value, option.seconds.low, option.seconds.high, option.worker_seconds]
