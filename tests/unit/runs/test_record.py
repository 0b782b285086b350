import json

import pytest

from equipoise.config import TrainConfig
from equipoise.runs.record import Lap, Record, examples_at_target, mean_noise_scale


def build_lap(seen, metric=None, **fields):
    times = {"seconds": 0.5, "data_seconds": 0.1, "compute_seconds": 0.3, "exchange_seconds": 0.1}
    return Lap(
        step=seen // 10,
        steps=10,
        seen=seen,
        examples=100,
        workers=1,
        lr=0.1,
        loss=1.0,
        metric=metric,
        **times,
        **fields,
    )


def test_crossing_is_interpolated_between_two_evaluations():
    laps = [build_lap(100, 0.5), build_lap(200), build_lap(300, 0.9), build_lap(400, 0.95)]
    assert examples_at_target(laps, 0.8) == pytest.approx(250)
    assert examples_at_target(laps, 0.9) == pytest.approx(300)


def test_first_crossing_counts():
    assert examples_at_target(
        [build_lap(100, 0.0), build_lap(200, 0.8), build_lap(300, 0.1), build_lap(400, 0.9)], 0.8
    ) == pytest.approx(200)


def test_target_met_at_the_first_evaluation_counts_from_there():
    assert examples_at_target([build_lap(100, 0.9)], 0.8) == 100


def test_no_crossing_without_an_evaluation_at_the_target():
    assert examples_at_target([], 0.8) is None
    assert examples_at_target([build_lap(100), build_lap(200, 0.79)], 0.8) is None


def test_noise_scale_averages_terms_by_draws_and_divides_last():
    sizes = {"local_batch": 8, "total_batch": 16}
    first = build_lap(100, local_norm=14, total_norm=9, draws=3, **sizes)  # |G|^2 = 4, tr(Sigma) = 80
    second = build_lap(200, local_norm=22, total_norm=12, draws=1, **sizes)  # |G|^2 = 2, tr(Sigma) = 160
    assert mean_noise_scale([first, build_lap(150), second]) == pytest.approx((3 * 80 + 160) / (3 * 4 + 2))
    assert mean_noise_scale([build_lap(100)]) is None


def test_record_survives_json():
    record = Record(
        config=TrainConfig(workload="digits", lr=0.1),
        machine={"cores": 2},
        laps=[build_lap(100, 0.5), build_lap(200, 0.9)],
        status="reached_target",
        target=0.8,
        examples_to_target=175.0,
        test=0.85,
    )
    record_json = json.loads(json.dumps(record.to_json(), allow_nan=False))
    assert record_json["status"] == "reached_target"
    assert Record.from_json(record_json) == record
    assert record.seconds == 1.0
    assert record.examples_per_second == 200
