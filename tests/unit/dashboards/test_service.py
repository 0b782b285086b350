"""The service's panels show increases of counters between snapshots."""

import pytest

from dashboards.metrics_snapshot import MetricsSnapshot
from dashboards.model_status import ModelStatus, VersionStatus
from dashboards.page import Page, render_html
from dashboards.panels.service import (
    batch_size_counts,
    bucket_quantile,
    build_service_sections,
    latency_quantiles,
    rejections_table,
    request_rates,
)

SNAPSHOTS = [
    MetricsSnapshot(
        time=0, requests={"200": 10.0}, seconds={"0.001": 0.0, "0.002": 10.0, "+Inf": 10.0}, pictures={"a 1": 10.0}
    ),
    MetricsSnapshot(
        time=5,
        requests={"200": 60.0, "429": 5.0, "503": 5.0, "500": 1.0},
        refused={"busy": 10.0},
        seconds={"0.001": 25.0, "0.002": 60.0, "+Inf": 60.0},
        pictures={"a 1": 40.0, "a 2": 20.0},
        batches={"1.0": 5.0, "2.0": 8.0, "4.0": 9.0, "+Inf": 10.0},
    ),
]


def test_rates_are_increases_divided_by_elapsed_time():
    (row,) = request_rates(SNAPSHOTS).to_dict("records")
    assert (row["answered"], row["refused"], row["failed"]) == (10, 2, 0.2)


def test_restarted_service_has_no_negative_rate():
    (row,) = request_rates([SNAPSHOTS[1], MetricsSnapshot(time=10, requests={"200": 20.0})]).to_dict("records")
    assert row["answered"] == 4


def test_quantiles_are_interpolated_within_their_buckets():
    (row,) = latency_quantiles(SNAPSHOTS).to_dict("records")
    assert row[0.5] == pytest.approx(1.0)  # 25 of 50 took less than a millisecond
    assert row[0.9] == pytest.approx(1 + 20 / 25)
    assert bucket_quantile([(0.001, 0.0), (float("inf"), 4.0)], 0.5) == pytest.approx(1.0)
    assert bucket_quantile([(0.001, 0.0), (float("inf"), 0.0)], 0.5) is None


def test_batches_are_counted_by_size():
    assert batch_size_counts(SNAPSHOTS) == {"1": 5, "2": 3, "3-4": 1, "over 4": 1}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_page_is_rendered_from_few_snapshots(count):
    version = VersionStatus(version="1", bundle="there", engine="eager")
    model_statuses = [ModelStatus(name="a", classes=[], share=0, current=version)]
    sections = build_service_sections(SNAPSHOTS[:count], model_statuses)
    assert "there" in render_html(Page(title="service", lead="", sections=sections))


def test_rejections_are_counted_by_reason():
    assert rejections_table(SNAPSHOTS).rows == [["busy", 10]]
    assert rejections_table(SNAPSHOTS[:1]) is None
