"""Reports of a training program, and the laps built from them."""

import math

import pytest

from equipoise.errors import EquipoiseError
from equipoise.runs.reports import LapBuilder, Report, ReportReader, leave_out_startup, parse_json_report

PATTERNS = (r"val_loss=(\S+)", r"seen ([\d,]+)")


def build_laps(*reports, global_batch=10):
    builder = LapBuilder(workers=1, global_batch=global_batch, lr=0.1)
    for report, seconds in reports:
        builder.add_report(report, seconds)
    return builder


def test_a_json_line_is_a_report_and_any_other_line_is_none():
    assert parse_json_report('{"examples": 64, "metric": 0.5}\n') == Report(examples=64, metric=0.5)
    assert parse_json_report('  {"examples": 64.0, "metric": null, "epoch": 3} ') == Report(examples=64)
    for line in ("", "epoch 3", "{examples: 3}", '{"loss": 1}', "[1]", '{"examples": 1', "\x00\ufffd"):
        assert parse_json_report(line) is None


@pytest.mark.parametrize(
    "line",
    ['{"examples": "64"}', '{"examples": true}', '{"examples": 1.5}', '{"examples": -1}', '{"examples": NaN}',
     '{"examples": 1, "metric": "0.5"}', '{"examples": 1, "metric": [1]}', '{"examples": 1e13}',
     f'{{"examples": 1{"0" * 400}}}', f'{{"examples": 1{"0" * 5000}}}'],
)  # fmt: skip
def test_a_report_without_usable_numbers_is_refused(line):
    with pytest.raises(EquipoiseError) as refusal:
        parse_json_report(line)
    assert refusal.value.code == "report-invalid"


def test_a_metric_of_hundreds_of_digits_is_infinite():
    report = parse_json_report(f'{{"examples": 1, "metric": -1{"0" * 400}}}')
    assert report == Report(examples=1, metric=-math.inf)
    with pytest.raises(EquipoiseError, match="metric was -inf"):
        build_laps((report, 1.0))


def test_patterns_take_examples_from_the_line_of_the_metric_or_one_before():
    reader = ReportReader(*PATTERNS)
    assert reader.read_line("val_loss=9.0 before any examples") is None
    assert reader.read_line("seen 1,024 of 50,000") == Report(examples=1024)
    assert reader.read_line("val_loss=0.25") == Report(examples=1024, metric=0.25)
    assert reader.read_line("seen 2,048 val_loss=2e-1") == Report(examples=2048, metric=0.2)
    assert reader.read_line('{"examples": 5}') is None


@pytest.mark.parametrize("line", ["seen 10 val_loss=bad", "seen , val_loss=1"])
def test_a_pattern_that_finds_no_number_is_refused(line):
    with pytest.raises(EquipoiseError) as refusal:
        ReportReader(*PATTERNS).read_line(line)
    assert refusal.value.code == "report-invalid"


@pytest.mark.parametrize("pattern", ["(", "loss="])
def test_an_invalid_pattern_is_refused(pattern):
    with pytest.raises(EquipoiseError) as refusal:
        ReportReader(pattern, PATTERNS[1])
    assert refusal.value.code == "option-format"


def test_laps_are_the_stretches_between_reports():
    builder = build_laps(
        (Report(examples=0), 5.0), (Report(examples=40, metric=0.1), 7.0), (Report(examples=100, metric=0.3), 8.0)
    )
    laps = builder.finished_laps()
    assert [(lap.seen, lap.examples, lap.step, lap.steps, lap.seconds, lap.metric) for lap in laps] == [
        (40, 40, 4, 4, 2.0, 0.1),
        (100, 60, 10, 6, 1.0, 0.3),
    ]
    assert all((lap.loss, lap.compute_seconds, lap.lr, lap.workers) == (None, None, 0.1, 1) for lap in laps)


def test_start_of_the_program_is_left_out_once_a_second_lap_tells_the_pace():
    builder = build_laps((Report(examples=10, metric=0.1), 30.0))
    assert builder.finished_laps()[0].seconds == 30
    builder.add_report(Report(examples=30, metric=0.2), 32.0)
    assert [lap.seconds for lap in builder.finished_laps()] == [1, 2]
    builder.add_report(Report(examples=0 + 60, metric=0.2), 38.0)  # paces of 0.1 and 0.2: their median
    assert builder.finished_laps()[0].seconds == pytest.approx(1.5)


def test_a_first_lap_that_is_faster_than_the_others_stays():
    laps = build_laps((Report(examples=10), 1.0), (Report(examples=20), 3.0)).laps
    assert leave_out_startup(laps) == laps


def test_frequent_reports_without_a_metric_end_no_lap_of_their_own():
    reports = [(Report(examples=10 * k), 0.04 * k) for k in range(1, 8)]
    assert [lap.seen for lap in build_laps(*reports).laps] == [30, 60]


def test_seconds_of_the_program_count_instead_of_the_clock():
    laps = build_laps((Report(examples=10, seconds=2.0), 9.0), (Report(examples=20, seconds=3.0), 20.0)).laps
    assert [lap.seconds for lap in laps] == [2, 1]


def test_a_metric_after_the_same_examples_belongs_to_the_last_lap_and_its_time_to_none():
    laps = build_laps(
        (Report(examples=10), 1.0), (Report(examples=10, metric=0.5), 4.0), (Report(examples=20, metric=0.6), 5.0)
    ).laps
    assert [(lap.seconds, lap.metric) for lap in laps] == [(1, 0.5), (1, 0.6)]


@pytest.mark.parametrize(
    "later",
    [Report(examples=5), Report(examples=30, metric=math.nan), Report(examples=30, metric=-math.inf),
     Report(examples=30, seconds=0.5), Report(examples=30, seconds=math.nan)],
)  # fmt: skip
def test_reports_that_go_backwards_or_are_not_finite_are_refused(later):
    builder = build_laps((Report(examples=10, seconds=1.0), 1.0))
    with pytest.raises(EquipoiseError) as refusal:
        builder.add_report(later, 2.0)
    assert refusal.value.code == "report-invalid"
    assert len(builder.laps) == 1


def test_a_short_last_lap_counts_once_the_program_has_ended():
    builder = build_laps((Report(examples=10, metric=0.1), 1.0), (Report(examples=20), 1.01))
    assert len(builder.laps) == 1
    builder.finish()
    assert [lap.seen for lap in builder.laps] == [10, 20]
    builder.finish()
    assert len(builder.laps) == 2


def test_a_report_goes_backwards_from_the_last_one_even_if_that_ended_no_lap():
    with pytest.raises(EquipoiseError, match="10 examples after 20"):
        build_laps((Report(examples=20), 0.01), (Report(examples=10), 0.02))
