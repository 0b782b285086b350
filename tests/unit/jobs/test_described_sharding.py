"""What --sharding divides is said before the workers start, and what cannot be divided is refused there."""

import pytest

from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from jobs.ray_train.run import describe_exchange
from tests.support.errors import raises_code


def describe(workers, **options):
    config = TrainConfig(workload="digits", workers=workers, batch_size=4, **options)
    workload = load_workload(config)
    return describe_exchange(config.with_defaults(workload.defaults), workload)


def test_tensor_parallelism_says_what_it_divides():
    assert describe(2, sharding="tensor:2") == "dividing 4 layers with 96% of the weights over 2 workers"
    assert describe(2) == ""
    with raises_code("sharding-unusable", "body.7", "120 units", "tensor:7"):
        describe(7, sharding="tensor:7")


@pytest.mark.parametrize("sharding", ["none", "optimizer", "full"])
def test_other_shardings_divide_any_model(sharding):
    assert describe(2, sharding=sharding) == ""
