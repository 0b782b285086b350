"""What was measured of links: which workers, sizes and algorithms, and the rows of its table."""

import json

import pytest

from equipoise.planning.exchanges.link_report import LinkReport, SumTiming
from tests.support.errors import raises_code
from tests.support.link_reports import build_link_report


def build_sum(algorithm, size):
    return SumTiming(
        algorithm=algorithm,
        nodes=2,
        ranks=4,
        bytes=size,
        seconds=0.2,
        seconds_low=0.1,
        seconds_high=0.3,
        rounds=6,
        sent_bytes=1.5 * size,
    )


def test_sizes_rise_and_algorithms_keep_their_order():
    report = LinkReport(links=(), sums=tuple(build_sum(*row) for row in (("ring", 64), ("direct", 8), ("ring", 8))))
    assert (report.nodes, report.ranks, report.sizes, report.algorithms) == (2, 4, [8, 64], ["ring", "direct"])
    table = report.to_table()
    assert table.bytes.tolist() == [64, 8, 8] and table.sent_bytes.tolist() == [96, 12, 12]
    assert table.closed_form_seconds.isna().all() and [*table.columns][:4] == ["algorithm", "nodes", "ranks", "bytes"]


def test_report_is_read_as_it_was_written():
    report = build_link_report()
    assert LinkReport.from_json(json.loads(json.dumps(report.to_json()))) == report


@pytest.mark.parametrize(
    "change", [{"schema": 2}, {"sums": []}, {"links": [{"level": "on the moon"}]}, {"backend": None}]
)
def test_damaged_report_or_another_schema_is_refused(change):
    with raises_code("file-damaged"):
        LinkReport.from_json(build_link_report().to_json() | change)
