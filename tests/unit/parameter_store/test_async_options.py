"""Options of asynchronous workers that cannot be met are refused in one sentence, before anything starts."""

import pytest

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from tests.support.errors import raises_code


@pytest.mark.parametrize("sync", ["async", "async:", "async:-1", "async:1.5", "async:x", "async:1:2", "server:1"])
def test_bound_of_staleness_is_a_whole_number_from_0(sync):
    with raises_code("option-choice", "async:S with a whole number S of updates from 0", repr(sync)):
        TrainConfig(workload="digits", workers=2, sync=sync)


@pytest.mark.parametrize(
    ("options", "mentioned"),
    [
        ({"all_reduce": "two-level"}, "--all-reduce two-level with --sync async:2"),
        ({"all_reduce": "ring"}, "--all-reduce ring with --sync async"),
        ({"compression": "int8"}, "int8 with --sync async"),
    ],
)
def test_sums_and_compression_are_refused(options, mentioned):
    with raises_code("option-conflict", mentioned):
        TrainConfig(workload="digits", workers=2, sync="async:2", **options)


def test_more_servers_than_workers_or_parameters_are_refused():
    with raises_code("option-range", "got 3 servers for 2 workers"):
        TrainConfig(workload="digits", workers=2, sync="async:2", servers=3)
    with raises_code("option-range", "over 9 servers", "choose --servers 4 or fewer"):
        Training(TrainConfig(workload="tests.support.workloads:with_dropout", workers=9, sync="async:2", servers=9))
