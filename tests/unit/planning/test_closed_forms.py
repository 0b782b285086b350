from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.exchanges.algorithm_times import fit_algorithm_links, fit_link
from equipoise.planning.exchanges.closed_forms import (
    add_closed_forms,
    closed_form_cost,
    fit_closed_forms,
    predict_sum_seconds,
)
from equipoise.planning.exchanges.exchange_columns import read_algorithm_times
from equipoise.planning.exchanges.link_report import SumTiming
from equipoise.registries.all_reduce_registry import list_runnable_algorithms
from tests.support.link_reports import ALPHA, BETA, build_link_report, build_sum_timing

SIZES = (1 << 16, 1 << 22)


@pytest.mark.parametrize("name", ["backend", *list_runnable_algorithms(2)])
def test_two_hosts_tell_the_seconds_of_four(name):
    link = fit_closed_forms([build_sum_timing(name, 2, 2, size) for size in SIZES])[name]
    assert link == pytest.approx((ALPHA, BETA))
    four = build_sum_timing(name, 4, 4, 1 << 20)
    assert predict_sum_seconds(link, name, 4, 4, 1 << 20) == pytest.approx(four.seconds)


@pytest.mark.parametrize("alpha", [1e-5, 1e-3, 0.01])
@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_a_ring_of_halves_is_fitted_whether_delays_or_bytes_take_longer(ranks, alpha):
    costs = [closed_form_cost("backend", ranks, ranks, size) for size in (1 << 16, 1 << 18, 1 << 20, 1 << 22)]
    seconds = np.array([cost.seconds(alpha, 4e-8) for cost in costs])
    assert fit_link(costs, seconds) == pytest.approx((alpha, 4e-8))
    ring = closed_form_cost("ring", ranks, ranks, 1 << 20)
    hidden = min(alpha, 4e-8 * (1 << 20) / ranks / 2)
    assert seconds[2] == pytest.approx(ring.seconds(alpha, 4e-8) - (2 * ranks - 4) * hidden)


def test_two_levels_are_fitted_together():
    cost = closed_form_cost("two-level", 4, 2, 1000.0)
    assert cost[:2] == (4, 2000.0)  # 2 rounds inside and 2 between, of all bytes each
    rows = add_closed_forms([build_sum_timing("two-level", 4, 2, size) for size in SIZES])
    assert [row.closed_form_seconds for row in rows] == pytest.approx([row.seconds for row in rows])


def test_sizes_close_to_each_other_have_no_closed_form():
    rows = add_closed_forms([build_sum_timing("ring", 2, 2, size) for size in (1000, 7000)])
    assert [row.closed_form_seconds for row in rows] == [None, None]


def test_table_is_read_as_sums_of_a_plan_without_the_backend(tmp_path):
    report, path = build_link_report(), tmp_path / "links.csv"
    report.to_table().to_csv(path, index=False)
    assert pd.read_csv(path).columns.tolist() == [field.name for field in fields(SumTiming)]
    table = read_algorithm_times(path)
    assert table.algorithm.unique().tolist() == list_runnable_algorithms(4)
    assert fit_algorithm_links(table)["ring", True] == pytest.approx((ALPHA, BETA))
