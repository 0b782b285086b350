"""What a fit of step times can predict, and what must be measured for the rest, from fits that are given."""

import math

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.sections.step_time_section import describe_missing_measurements
from equipoise.planning.step_time_fit import StepTimeFit, find_identifiable_terms, is_still_identifiable
from equipoise.planning.step_time_model import StepSettings, StepTimeForm, overlapped_seconds, ring_all_reduce_seconds

BOTH, VOLUME = ("alpha", "volume"), ("volume",)
COLUMNS = ["nodes", "workers", "batch", "seconds"]


def build_fit(rows, **form):
    return StepTimeFit(
        form=StepTimeForm(**form),
        parameters={"a": 0.5, "c": 0.25},
        relative_error=0.0,
        rows=pd.DataFrame([(*row, 2.0) for row in rows], columns=COLUMNS),
        parameter_draws=[],
        residuals=np.zeros(1),
    )


ONE_NODE = [(1, 1, 8), (1, 2, 8), (1, 2, 16)]


@pytest.mark.parametrize(
    ("rows", "form", "setting", "missing"),
    [
        (ONE_NODE, {"local_terms": VOLUME}, (1, 2, 12), None),
        (ONE_NODE, {"local_terms": VOLUME, "has_batch_term": False}, (1, 2, 12), "rows of a second batch per worker"),
        (ONE_NODE, {"local_terms": VOLUME, "has_batch_term": False}, (1, 2, 8), None),
        (ONE_NODE, {"local_terms": VOLUME}, (1, 1, 99), None),
        (ONE_NODE[1:], {"local_terms": VOLUME}, (1, 1, 8), "rows of one worker"),
        (ONE_NODE[1:], {"local_terms": BOTH}, (1, 1, 8), None),
        (ONE_NODE[1:], {"between_terms": BOTH}, (1, 1, 8), None),
        (ONE_NODE, {"local_terms": VOLUME}, (1, 4, 8), "rows of another number of workers within one node"),
        (ONE_NODE, {"local_terms": BOTH}, (1, 4, 8), None),
        (ONE_NODE, {"local_terms": BOTH}, (2, 2, 8), "rows of several workers on several nodes"),
        (ONE_NODE[:1], {}, (1, 2, 8), "rows of several workers within one node"),
        ([*ONE_NODE, (2, 2, 8)], {"local_terms": BOTH, "between_terms": VOLUME}, (4, 2, 8), None),
        (
            [*ONE_NODE, (2, 2, 8)],
            {"local_terms": BOTH, "between_terms": VOLUME},
            (2, 4, 8),
            "rows of another number of workers on several nodes",
        ),
        ([*ONE_NODE, (2, 2, 8)], {"local_terms": VOLUME, "between_terms": BOTH}, (2, 4, 8), None),
    ],
)
def test_a_setting_needs_rows_like_it(rows, form, setting, missing):
    assert build_fit(rows, **form).missing_measurements(*setting) == missing


@pytest.mark.parametrize(
    ("rows", "form", "identifiable"),
    [
        (ONE_NODE, {"local_terms": BOTH}, True),
        (ONE_NODE, {"local_terms": VOLUME}, False),
        (ONE_NODE, {"local_terms": BOTH, "has_batch_term": False}, False),
        (ONE_NODE[:1], {}, True),
        ([*ONE_NODE, (2, 2, 8)], {"local_terms": BOTH, "between_terms": VOLUME}, False),
        ([*ONE_NODE, (2, 2, 8)], {"local_terms": BOTH, "between_terms": BOTH}, True),
        ([(1, 1, 8), (2, 2, 8)], {"between_terms": BOTH}, True),
    ],
)
def test_a_fit_predicts_larger_clusters_where_delay_and_rate_of_each_level_are_known(rows, form, identifiable):
    assert build_fit(rows, **form).identifiable == identifiable


def test_a_measured_setting_counts_for_three_quarters():
    fit = build_fit([(1, 1, 8), (1, 1, 8)])
    settings = StepSettings(*(np.array(values, float) for values in ([1, 1], [1, 1], [8, 16])))
    fitted = [0.5 + 0.25 * 8, 0.5 + 0.25 * 16]
    assert fit.fitted_seconds(settings) == pytest.approx(fitted)
    assert fit.shrunk_seconds(settings) == pytest.approx([2.0**0.75 * fitted[0] ** 0.25, fitted[1]])


def build_rows(*workers, nodes=1):
    return pd.DataFrame([(nodes, count, 8, 1.0) for count in workers], columns=COLUMNS)


def build_exchanges(*shares):
    return pd.DataFrame({"nodes": 1, "workers": 2, "kind": "sum", "share": shares, "seconds": 1.0})


@pytest.mark.parametrize(
    ("workers", "all_workers", "shares", "terms"),
    [
        ((1,), (1,), (), ()),
        ((1, 2), (1, 2), (), VOLUME),
        ((1, 2, 4), (1, 2, 4), (), BOTH),
        ((2, 4), (2, 4), (), VOLUME),
        ((2, 4), (1, 2, 4), (), BOTH),
        ((2, 4, 8), (2, 4, 8), (), BOTH),
        ((2,), (2,), (0.125, 1.0), BOTH),
        ((2,), (2,), (0.126, 1.0), VOLUME),
    ],
)
def test_delay_and_rate_need_several_sizes_of_rings_or_of_messages(workers, all_workers, shares, terms):
    found = find_identifiable_terms(build_rows(*workers), build_rows(*all_workers), build_exchanges(*shares))
    assert found == terms


@pytest.mark.parametrize(
    ("form", "workers", "nodes", "identifiable"),
    [
        ({"local_terms": BOTH, "has_batch_term": False}, (1, 2, 4), 1, True),
        ({"local_terms": BOTH, "has_batch_term": False}, (1, 2), 1, False),
        ({"local_terms": VOLUME, "has_batch_term": False}, (1, 2), 1, True),
        ({"local_terms": VOLUME, "has_batch_term": True}, (1, 2), 1, False),
        ({"between_terms": BOTH, "has_batch_term": False}, (2, 4), 2, True),
        ({"between_terms": BOTH, "has_batch_term": False}, (2,), 2, False),
    ],
)
def test_a_draw_of_rows_must_still_tell_all_terms(form, workers, nodes, identifiable):
    rows = build_rows(*workers, nodes=nodes)
    assert is_still_identifiable(StepTimeForm(**form), rows, build_exchanges()) == identifiable


def test_ring_of_workers_and_overlap_have_their_closed_forms():
    workers = np.array([1.0, 2.0, 4.0])
    assert ring_all_reduce_seconds(workers, 0.5, 8.0).tolist() == [0, 2 * 0.5 + 8, 6 * 0.5 + 12]
    compute, exchange = np.array([3.0, 4.0]), np.array([4.0, 3.0])
    assert overlapped_seconds(compute, exchange, 1.0) == pytest.approx([7, 7])
    assert overlapped_seconds(compute, exchange, 2.0) == pytest.approx([5, 5])
    assert overlapped_seconds(compute, exchange, 0.5) == pytest.approx([(math.sqrt(3) + 2) ** 2] * 2)
    assert StepTimeForm(local_terms=BOTH, between_terms=VOLUME, has_overlap=True).parameter_names == [
        "a", "c", "local_alpha", "local_volume", "between_volume", "g",
    ]  # fmt: skip
    assert StepTimeForm(has_batch_term=False).parameter_names == ["a"]


def test_gaps_of_a_fit_are_those_of_twice_the_measured_workers():
    gap = "rows of another number of workers within one node"
    assert describe_missing_measurements(build_fit(ONE_NODE, local_terms=VOLUME)) == [gap]
    assert describe_missing_measurements(build_fit(ONE_NODE, local_terms=BOTH)) == []
