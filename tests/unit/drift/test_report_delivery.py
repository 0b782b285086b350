"""What a drift monitor knows does not depend on how requests are spread over replicas, nor on lost or late reports."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.drift.monitor.monitor import Monitor
from tests.support.monitor_reports import (
    RUN_LENGTH_REQUESTS,
    STREAM,
    assert_equal_states,
    compute_expected_result,
    compute_image_rows,
    copy_ledger,
    deliver_reports,
    drop_delivery_counts,
    read_detector_states,
    spread_over_replicas,
    start_monitor,
)


def test_alarm_under_two_known_conditions_is_of_the_same_change():
    (_, one), (_, two) = (compute_expected_result(has_conditions) for has_conditions in (False, True))
    assert (one.state, one.cause) == (two.state, two.cause) == ("drift", "exposure")
    assert [*one.conditions] == ["as published"] and len(two.conditions) == 2 and min(two.conditions.values()) > 0.2


def assert_expected_result(monitor, has_conditions):
    """Compare detectors and verdict with those of a single replica without failures."""
    states, verdict = compute_expected_result(has_conditions)
    assert_equal_states(read_detector_states(monitor), states)
    assert drop_delivery_counts(monitor.compute_verdict(STREAM)) == drop_delivery_counts(verdict)


@pytest.mark.parametrize("has_conditions", [False, True], ids=["one condition", "two conditions"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(replicas=st.sampled_from([1, 2, 4, 8]), seed=st.integers(0, 2**32 - 1))
def test_detectors_are_equal_however_requests_are_spread_and_reports_delivered(has_conditions, replicas, seed):
    rng = np.random.default_rng(seed)
    with TemporaryDirectory() as folder:
        monitor = deliver_reports(
            start_monitor(Path(folder), has_conditions=has_conditions),
            spread_over_replicas(compute_image_rows(has_conditions), replicas, rng),
            rng,
        )
    assert_equal_states(read_detector_states(monitor), compute_expected_result(has_conditions)[0])
    assert drop_delivery_counts(monitor.compute_verdict(STREAM)) == drop_delivery_counts(
        compute_expected_result(has_conditions)[1]
    )
    assert monitor.ledger.lost == monitor.ledger.late == monitor.ledger.died == 0


@pytest.mark.parametrize("has_conditions", [False, True], ids=["one condition", "two conditions"])
@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    replicas=st.sampled_from([1, 2, 4, 8]),
    entries_per_snapshot=st.sampled_from([1, 4, 200]),
    seed=st.integers(0, 2**32 - 1),
)
def test_monitor_that_crashes_at_any_time_continues_where_it_was(has_conditions, replicas, entries_per_snapshot, seed):
    rng, folder = np.random.default_rng(seed), TemporaryDirectory()

    def crash(monitor):
        if rng.random() > 0.3:
            return monitor
        restarted = Monitor(Path(folder.name), RUN_LENGTH_REQUESTS, entries_per_snapshot=entries_per_snapshot)
        assert (
            restarted.events == monitor.events
            and copy_ledger(restarted) == copy_ledger(monitor)
            and not restarted.unsent_alarms
        )
        if monitor.detectors:
            assert_equal_states(read_detector_states(restarted), read_detector_states(monitor))
        return restarted

    with folder:
        monitor = deliver_reports(
            start_monitor(Path(folder.name), has_conditions=has_conditions, entries_per_snapshot=entries_per_snapshot),
            spread_over_replicas(compute_image_rows(has_conditions), replicas, rng),
            rng,
            crash,
        )
    assert_equal_states(read_detector_states(monitor), compute_expected_result(has_conditions)[0])
    assert drop_delivery_counts(monitor.compute_verdict(STREAM)) == drop_delivery_counts(
        compute_expected_result(has_conditions)[1]
    )
    assert monitor.ledger.lost == 0
