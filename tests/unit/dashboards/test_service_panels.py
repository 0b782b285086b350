"""The figures, facts and tables of a service's page show what its snapshots and the states of its models hold."""

from datetime import UTC, datetime

import pandas as pd
import pytest

from dashboards.metrics_snapshot import MetricsSnapshot
from dashboards.model_status import ModelStatus, VersionStatus
from dashboards.panels.service import (
    batch_size_counts,
    bucket_quantile,
    build_service_sections,
    classify_status,
    models_table,
    rejections_table,
    request_rates,
    service_facts,
    snapshot_deltas,
)
from dashboards.theme import AMBER, BLUE, ORANGE, SERIES_COLORS

INFINITY = float("inf")
MODEL = ModelStatus(
    name="shop",
    classes=["cola", "water"],
    share=0.25,
    current=VersionStatus(version="3", engine="onnxruntime", bundle="bundles/3"),
    canary=VersionStatus(version="4", engine="eager", bundle="bundles/4"),
    shadow=VersionStatus(version="5", engine="script", bundle="bundles/5"),
)


def build_snapshots(count=2, interval=10.0):
    """Build snapshots of a service that answers ever more requests, with two versions of a model."""
    return [
        MetricsSnapshot(
            time=index * interval,
            requests={"200": 20.0 * index, "429": 10.0 * index, "500": 5.0 * index},
            seconds={"0.001": 10.0 * index, "0.002": 20.0 * index, "+Inf": 20.0 * index},
            pictures={"a 1": 40.0 * index, "a 2": 10.0 * index},
            batches={"1.0": 6.0 * index, "+Inf": 8.0 * index},
        )
        for index in range(count)
    ]


def figure_of(snapshots, name):
    """Return the figure of a panel by the panel's name."""
    _, requests, *_ = build_service_sections(snapshots, [])
    return {panel.name: panel.figure for panel in requests.parts}[name]


def unix_times(trace):
    """Return where a trace has points on an axis of time, in seconds since 1970."""
    return [moment.timestamp() for moment in pd.to_datetime(trace.x, utc=True)]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("200", "answered"),
        ("302", "answered"),
        ("400", "refused"),
        ("429", "refused"),
        ("503", "refused"),
        ("500", "failed"),
        ("504", "failed"),
    ],
)
def test_outcome_of_a_status(status, outcome):
    assert classify_status(status) == outcome


def test_label_that_appears_later_counts_from_zero():
    before, after = MetricsSnapshot(time=1, refused={"busy": 2.0}), MetricsSnapshot(time=4, refused={"late": 3.0})
    (row,) = snapshot_deltas([before, after], "refused").to_dict("records")
    assert row["late"] == 3
    assert row["seconds"] == 3
    assert row["time"] == datetime.fromtimestamp(4, UTC)


def test_count_that_did_not_change_has_no_increase():
    snapshot = MetricsSnapshot(time=1, requests={"200": 7.0})
    (row,) = snapshot_deltas([snapshot, MetricsSnapshot(time=2, requests={"200": 7.0})], "requests").to_dict("records")
    assert row["200"] == 0


def test_status_that_is_missing_from_a_snapshot_counts_as_none():
    snapshots = [
        MetricsSnapshot(time=0),
        MetricsSnapshot(time=1, requests={"200": 4.0}),
        MetricsSnapshot(time=3, requests={"200": 4.0, "500": 6.0}),
    ]
    rates = request_rates(snapshots)
    assert rates.answered.tolist() == [4, 0]
    assert rates.failed.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("q", "milliseconds"),
    [
        (0.0, 0.0),
        (0.25, 5.0),  # in the middle of the first bucket
        (0.5, 10.0),  # at a bound
        (0.75, 15.0),
        (0.9, 18.0),
        (1.0, 20.0),
    ],
)
def test_quantile_lies_within_its_bucket(q, milliseconds):
    assert bucket_quantile([(0.01, 2.0), (0.02, 4.0), (INFINITY, 4.0)], q) == pytest.approx(milliseconds)


def test_quantile_beyond_the_last_bound_is_that_bound():
    assert bucket_quantile([(0.01, 2.0), (0.02, 3.0), (INFINITY, 9.0)], 0.9) == pytest.approx(20)
    assert bucket_quantile([(0.01, 2.0), (0.02, 3.0)], 1.5) == pytest.approx(20)


def test_quantile_of_no_buckets_and_of_empty_first_buckets():
    assert bucket_quantile([], 0.5) is None
    assert bucket_quantile([(0.01, 0.0), (0.02, 1.0)], 0.5) == pytest.approx(15)


def test_batches_are_counted_since_the_service_started():
    batches = {"2.0": 4.0, "8.0": 9.0, "9.0": 10.0, "+Inf": 13.0}
    last = MetricsSnapshot(time=1, batches=batches)
    assert batch_size_counts([MetricsSnapshot(time=0), last]) == {"1-2": 4, "3-8": 5, "9": 1, "over 9": 3}
    assert batch_size_counts([]) == {}


def test_request_rates_are_drawn_by_outcome():
    figure = figure_of(build_snapshots(3), "rate")
    assert {trace.name: trace.line.color for trace in figure.data} == {
        "answered": BLUE,
        "refused": AMBER,
        "failed": ORANGE,
    }
    assert {trace.name: list(trace.y) for trace in figure.data} == {
        "answered": [2, 2],
        "refused": [1, 1],
        "failed": [0.5, 0.5],
    }
    assert unix_times(figure.data[0]) == [10, 20]
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("time, UTC", "requests/s")
    assert figure.layout.yaxis.rangemode == "tozero"


def test_latency_is_drawn_as_three_percentiles():
    figure = figure_of(build_snapshots(), "latency")
    assert {trace.name: trace.line.color for trace in figure.data} == {
        "median": BLUE,
        "90th percentile": AMBER,
        "99th percentile": ORANGE,
    }
    assert [trace.y[0] for trace in figure.data] == pytest.approx([1.0, 1.8, 1.98])
    assert figure.layout.yaxis.title.text == "latency, ms"


def test_images_are_drawn_by_version():
    figure = figure_of(build_snapshots(), "versions")
    assert {trace.name: (list(trace.y), trace.line.color) for trace in figure.data} == {
        "a 1": ([4], SERIES_COLORS[0]),
        "a 2": ([1], SERIES_COLORS[1]),
    }
    assert unix_times(figure.data[0]) == [10]
    assert figure.layout.yaxis.title.text == "examples/s"


def test_version_without_answers_yet_is_drawn_at_zero():
    snapshots = [
        MetricsSnapshot(time=0),
        MetricsSnapshot(time=2, pictures={"a 1": 4.0}),
        MetricsSnapshot(time=4, pictures={"a 1": 4.0, "a 2": 6.0}),
    ]
    assert {trace.name: list(trace.y) for trace in figure_of(snapshots, "versions").data} == {
        "a 1": [2, 0],
        "a 2": [0, 3],
    }


def test_batches_are_drawn_as_bars_of_each_size():
    figure = figure_of(build_snapshots(), "batches")
    (bars,) = figure.data
    assert (list(bars.x), list(bars.y), bars.marker.color) == (["1", "over 1"], [6, 2], BLUE)
    assert figure.layout.xaxis.type == "category"
    assert figure.layout.xaxis.title.text == "examples computed at once"
    assert (figure.layout.yaxis.title.text, figure.layout.yaxis.rangemode) == ("batches", "tozero")


@pytest.mark.parametrize(("points", "mode"), [(40, "lines+markers"), (41, "lines")])
def test_few_points_have_markers(points, mode):
    assert {trace.mode for trace in figure_of(build_snapshots(points + 1), "rate").data} == {mode}


def test_single_point_is_visible_on_every_line():
    for name in ("rate", "latency", "versions"):
        assert all("markers" in trace.mode for trace in figure_of(build_snapshots(), name).data)


def test_facts_count_requests_by_outcome_with_current_rate_and_latency():
    snapshots = [*build_snapshots(3), MetricsSnapshot(time=24, requests={"200": 2040.0, "429": 20.0, "503": 1.0})]
    assert service_facts(snapshots) == {
        "answered": "2,040",
        "refused": "21",
        "failed": "0",
        "current rate": "500 requests/s",
        "recent 99th percentile": "2 ms",  # of the last interval with predictions
    }


def test_facts_of_a_service_that_has_answered_nothing():
    assert service_facts([]) == {"requests": "none yet"}
    assert service_facts([MetricsSnapshot(time=0)]) == {"answered": "0", "refused": "0", "failed": "0"}
    assert service_facts([MetricsSnapshot(time=0), MetricsSnapshot(time=1)])["recent 99th percentile"] == "-"


def test_most_frequent_rejection_comes_first():
    table = rejections_table([MetricsSnapshot(time=0, refused={"busy": 1.0, "late": 7.0, "never": 0.0, "large": 3.0})])
    assert table.columns == ["reason", "requests"]
    assert table.rows == [["late", 7], ["large", 3], ["busy", 1]]


def test_models_are_listed_with_the_share_of_answers_of_each_bundle():
    table = models_table([MODEL, ModelStatus(name="yard", classes=[], share=0, current=MODEL.current)])
    assert table.columns == ["model", "role", "version", "engine", "share of answers", "bundle"]
    assert table.rows == [
        ["shop", "current", "3", "onnxruntime", "75%", "3"],
        ["shop", "canary", "4", "eager", "25%", "4"],
        ["shop", "shadow", "5", "script", "0%", "5"],
        ["yard", "current", "3", "onnxruntime", "100%", "3"],
    ]


def test_service_without_requests_says_how_to_send_one():
    for snapshots in ([], [MetricsSnapshot(time=0)], [MetricsSnapshot(time=0), MetricsSnapshot(time=1)]):
        _, requests = build_service_sections(snapshots, [MODEL])
        (note,) = requests.parts
        assert "/predict" in note.text


def test_page_has_a_section_of_rejections_only_if_there_are_some():
    refused = MetricsSnapshot(time=20, refused={"busy": 1.0})
    assert [section.title for section in build_service_sections([refused], [MODEL])] == [
        "Service",
        "Requests",
        "Refusals",
    ]
    service, requests = build_service_sections(build_snapshots(), [MODEL])
    assert [part.name for part in service.parts] == ["service", "models"]
    assert service.parts[0].facts["answered"] == "20" and len(service.parts[1].rows) == 3
    assert [panel.name for panel in requests.parts] == ["rate", "latency", "versions", "batches"]
    assert all(len(panel.reading) > 100 for panel in requests.parts)
