import json
import math
from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware_facts import HardwareFacts
from equipoise.runs.record import ClassCount, Lap, Record, examples_at_target, mean_noise_scale
from equipoise.runs.target import Target


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
    assert examples_at_target(laps, Target(value=0.8)) == pytest.approx(250)
    assert examples_at_target(laps, Target(value=0.9)) == pytest.approx(300)


def test_crossing_of_a_falling_metric_is_interpolated_too():
    laps = [build_lap(100, 2.0), build_lap(200, 2.5), build_lap(300, 0.5), build_lap(400, 3.0)]
    target = Target(value=1.0, lower_is_better=True)
    assert examples_at_target(laps, target) == pytest.approx(275)  # not at the first evaluation
    assert examples_at_target(laps, Target(value=0.5, lower_is_better=True)) == pytest.approx(300)
    assert examples_at_target(laps, Target(value=0.4, lower_is_better=True)) is None
    assert examples_at_target([build_lap(100, 0.9)], target) == 100


def test_first_crossing_counts():
    laps = [build_lap(100, 0.0), build_lap(200, 0.8), build_lap(300, 0.1), build_lap(400, 0.9)]
    assert examples_at_target(laps, Target(value=0.8)) == pytest.approx(200)


def test_target_met_at_the_first_evaluation_counts_from_there():
    assert examples_at_target([build_lap(100, 0.9)], Target(value=0.8)) == 100


def test_no_crossing_without_an_evaluation_at_the_target():
    assert examples_at_target([], Target(value=0.8)) is None
    assert examples_at_target([build_lap(100), build_lap(200, 0.79)], Target(value=0.8)) is None


@pytest.mark.parametrize("lower_is_better", [False, True])
def test_no_metric_reaches_a_target_that_is_not_there(lower_is_better):
    laps = [build_lap(100, -1e300), build_lap(200, 1e300), build_lap(300, 0.0)]
    assert examples_at_target(laps, Target(value=None, lower_is_better=lower_is_better)) is None


def test_noise_scale_averages_terms_by_draws_and_divides_last():
    sizes = {"local_batch": 8, "total_batch": 16}
    first = build_lap(100, local_norm=14, total_norm=9, draws=3, **sizes)  # |G|^2 = 4, tr(Sigma) = 80
    second = build_lap(200, local_norm=22, total_norm=12, draws=1, **sizes)  # |G|^2 = 2, tr(Sigma) = 160
    assert mean_noise_scale([first, build_lap(150), second]) == pytest.approx((3 * 80 + 160) / (3 * 4 + 2))
    assert mean_noise_scale([build_lap(100)]) is None


def build_record():
    norms = {"local_norm": 14.0, "total_norm": 9.0, "local_batch": 8.0, "total_batch": 16, "draws": 3}
    return Record(
        config=TrainConfig(workload="digits", lr=0.1),
        machine=HardwareFacts(cores=2),
        laps=[build_lap(100, 0.5, **norms), build_lap(200, 0.9)],
        status="reached_target",
        target=0.8,
        examples_to_target=175.0,
        test=0.85,
    )


def test_record_survives_json():
    record = build_record()
    record_json = json.loads(json.dumps(record.to_json(), allow_nan=False))
    assert record_json["status"] == "reached_target"
    assert Record.from_json(record_json) == record
    assert record.seconds == 1.0
    assert record.examples_per_second == 200


def test_record_has_the_direction_of_its_metric():
    record = replace(build_record(), target=0.3, lower_is_better=True)
    assert Record.from_json(record.to_json()).goal == Target(value=0.3, lower_is_better=True)
    older = build_record().to_json()
    del older["lower_is_better"]  # of a release before it had one
    assert Record.from_json(older).goal == Target(value=0.8)


def test_record_may_lack_a_target_and_what_a_program_does_not_report():
    unknown = dict.fromkeys(("lr", "loss", "data_seconds", "compute_seconds", "exchange_seconds"))
    laps = [replace(lap, **unknown) for lap in build_record().laps]
    record = replace(build_record(), target=None, examples_to_target=None, status="max_examples", laps=laps)
    assert Record.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_decoded_record_is_written_as_it_was():
    text = json.dumps(build_record().to_json())
    assert json.dumps(Record.from_json(json.loads(text)).to_json()) == text
    assert json.loads(text)["machine"] == {"cores": 2}


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 1},
        {"schema": None},
        {"config": {}},
        {"config": {"workload": "digits", "lr": -1}},
        {"config": {"workload": "digits", "lr": "0.1"}},
        {"config": {"workload": "digits", "optimizer": "sdg"}},
        {"machine": ["cores"]},
        {"machine": {"cores": "two"}},
        {"laps": None},
        {"laps": [[]]},
        {"status": "done"},
        {"status": "\ud800"},
        {"reason": 3},
        {"target": True},
        {"target": math.nan},
        {"lower_is_better": "yes"},
        {"test": math.nan},
        {"examples_to_target": math.inf},
    ],
)
def test_invalid_record_is_refused(changes):
    with pytest.raises(EquipoiseError) as caught:
        Record.from_json(build_record().to_json() | changes)
    assert caught.value.code == "run-damaged"


@pytest.mark.parametrize("contents", [None, [], "record", {}])
def test_contents_without_a_schema_are_refused(contents):
    with pytest.raises(EquipoiseError) as caught:
        Record.from_json(contents)
    assert caught.value.code == "run-damaged"


@pytest.mark.parametrize(
    "changes",
    [
        {"step": 0},
        {"seen": 2.5},
        {"workers": True},
        {"lr": -0.1},
        {"loss": math.nan},
        {"loss": 10**400},
        {"seconds": 0},
        {"data_seconds": -1},
        {"lr": "0.1"},
        {"draws": -1},
        {"metric": "0.5"},
        {"local_batch": 16.0},
    ],
)
def test_lap_with_invalid_number_is_refused(changes):
    contents = build_record().to_json()["laps"][0]
    assert Lap.from_json(contents) == build_record().laps[0]
    with pytest.raises(EquipoiseError) as caught:
        Lap.from_json(contents | changes)
    assert caught.value.code == "run-damaged"


def test_record_says_how_the_run_ended():
    record = build_record()
    assert record.reached and not record.failed and record.outcome == "reached target"
    failed = replace(record, status="failed", reason="out of memory")
    assert failed.failed and not failed.reached and failed.outcome == "failed: out of memory"
    assert replace(record, status="max_examples").outcome == "max examples"


def test_largest_peak_counts_and_a_run_without_laps_has_no_rate():
    record = build_record()
    assert record.peak_bytes is None
    laps = [replace(lap, peak_bytes=peak) for lap, peak in zip(record.laps, (9, 4), strict=True)]
    assert replace(record, laps=laps).peak_bytes == 9
    assert replace(record, laps=[laps[0], record.laps[1]]).peak_bytes == 9
    empty = replace(record, laps=[])
    assert (empty.peak_bytes, empty.seconds, empty.examples_per_second) == (None, 0, 0)


def test_examples_of_a_class_that_are_right():
    assert ClassCount(name="cup", images=8, correct=6).accuracy == 0.75
    record = replace(build_record(), test_classes=[ClassCount(name="cup", images=8, correct=0)], unit="tokens")
    assert Record.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_batches_behind_the_norms_of_a_lap_differ():
    norms = {"local_norm": 14.0, "total_norm": 9.0, "draws": 1}
    assert build_lap(100, local_batch=15.5, total_batch=16, **norms).noise_terms() is not None
    with pytest.raises(ValueError, match="not below"):
        build_lap(100, local_batch=16.0, total_batch=16, **norms)
    for missing in ("local_norm", "total_norm", "local_batch", "total_batch"):
        values = {"local_batch": 8.0, "total_batch": 16, **norms, missing: None}
        assert build_lap(100, **values).noise_terms() is None


def test_batch_of_a_lap_is_that_of_its_steps():
    assert build_lap(100).global_batch == 10 and replace(build_lap(100), steps=1).global_batch == 100
