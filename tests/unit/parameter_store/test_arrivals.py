"""Log of arrivals: what is written is read again, and what no run can have written is refused in one sentence."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.parameter_store.arrivals import LapArrivals, parse_arrivals
from equipoise.parameter_store.order import UpdateOrder
from equipoise.parameter_store.virtual_clock import simulate_lap
from tests.support.errors import raises_code


def simulate_log(seconds, tickets_per_step, staleness, steps_of_laps):
    """Return the arrivals of laps of simulated workers."""
    order, laps, step = UpdateOrder(staleness, tickets_per_step), [], 0
    for steps in steps_of_laps:
        first, end = step * tickets_per_step, (step + steps) * tickets_per_step
        updates, step = simulate_lap(order, first, end, seconds), step + steps
        laps.append(LapArrivals.from_updates(updates, step=step, steps=steps, workers=len(seconds)))
    return laps


def write_log(laps):
    return "".join(lap.to_line() for lap in laps).encode()


@given(
    st.lists(st.floats(0.1, 5.0), min_size=1, max_size=5),
    st.integers(0, 2),
    st.integers(0, 6),
    st.lists(st.integers(1, 5), max_size=3),
)
def test_log_of_any_run_is_read_as_it_was_written(seconds, idle, staleness, steps_of_laps):
    tickets_per_step = len(seconds) + idle
    laps = simulate_log(seconds, tickets_per_step, staleness, steps_of_laps)
    assert parse_arrivals(write_log(laps), "arrivals.jsonl", tickets_per_step, staleness) == laps
    assert all(max(lap.staleness) <= staleness and 0 <= lap.mean_staleness <= max(lap.staleness) for lap in laps)


def test_staleness_counts_the_updates_between_pull_and_push():
    [lap] = simulate_log([1.0, 1.0, 5.0], 3, 4, [3])
    assert [[tuple(push) for push in pushes] for pushes in lap.updates] == [
        [(0, 0, 0)],
        [(1, 0, 1)],
        [(3, 1, 0)],
        [(4, 2, 1)],
        [(2, 0, 2), (5, 3, 0), (6, 4, 1)],  # the fourth update of the slow worker would be the fifth without it
        [(7, 5, 0)],
        [(8, 5, 1)],
    ]
    assert lap.staleness == [0, 1, 1, 1, 4, 1, 0, 0, 1]
    assert lap.mean_staleness == 1.0


def change_lap(changes):
    """Return the log of two laps with fields of the second one changed."""
    first, second = simulate_log([1.0, 1.0], 2, 1, [1, 1])
    return first.to_line() + json.dumps(json.loads(second.to_line()) | changes)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "line 1 is damaged: it is not valid JSON"),
        (change_lap({"updates": [[[2, 0, 0]], [[3, 0]]]}), "line 2 is damaged: updates[1][0]: "),
        (change_lap({"step": 3}), "it begins after step 2, the line before ends at step 1"),
        (change_lap({"steps": 2}), "it begins after step 0, the line before ends at step 1"),
        (change_lap({"workers": 3}), "it has 3 workers, the run at most 2"),
        (change_lap({"updates": [[[2, 0, 0]], []]}), "at least one"),
        (change_lap({"updates": [[[3, 0, 0], [2, 0, 1]]]}), "in the order of their tickets"),
        (change_lap({"updates": [[[2, 0, 0]], [[2, 0, 1]]]}), "its tickets are not those of steps 2 to 2, each once"),
        (change_lap({"updates": [[[2, 0, 0]]]}), "its tickets are not those of steps 2 to 2, each once"),
        (change_lap({"step": 10**12, "steps": 10**12 - 1}), "its tickets are not those of steps 2 to"),
        (change_lap({"updates": [[[2, 1, 0]], [[3, 0, 1]]]}), "ticket 2 was computed at version 1 and applied at 0"),
        (change_lap({"updates": [[[2, -1, 0]], [[3, 0, 1]]]}), "ticket 2 was computed at version -1"),
        (change_lap({"updates": [[[2, 0, 0]], [[3, 0, 2]]]}), "ticket 3 was computed by worker 2 of 2"),
    ],
)
def test_log_that_no_run_writes_is_refused(content, reason):
    with raises_code("run-damaged", "arrivals.jsonl", reason):
        parse_arrivals(content.encode(), "arrivals.jsonl", 2, 1)


def test_log_that_is_staler_than_its_run_allows_is_refused():
    laps = simulate_log([1.0, 1.0, 1.0], 3, 2, [2])
    with raises_code("run-damaged", "ticket 2 is 2 updates old, the run allows 1"):
        parse_arrivals(write_log(laps), "arrivals.jsonl", 3, 1)
