"""Built-in workloads keep their examples, splits and targets, so that runs of different days can be compared."""

import pytest

from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from tests.support.recorded import assert_as_recorded


@pytest.mark.parametrize("name", ["digits", "vending"])
def test_workload_is_as_recorded(name):
    config = TrainConfig(workload=name)
    workload = load_workload(config)
    splits = {part: getattr(workload, part) for part in ("train", "validation", "reference", "test")}
    values = {
        "classes": workload.classes,
        "target": workload.target,
        "channels": [*workload.mean, *workload.std],
        "examples": [workload.max_examples(config), workload.eval_interval(config), *map(len, splits.values())],
    }
    values |= {f"{part} labels": split.targets.numpy() for part, split in splits.items()}
    values |= {f"{part} means": split.inputs.float().mean((1, 2, 3)).numpy() for part, split in splits.items()}
    assert_as_recorded(f"workload-{name}", values, atol=0.1)
