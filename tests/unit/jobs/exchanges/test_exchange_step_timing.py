"""What a sweep times of other ways of exchange: laps in turns with exact sums, and encodings."""

from dataclasses import asdict, replace

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.runs.record import Lap
from equipoise.storage.atomic import write_json
from jobs.timing.exchange_step_timing import (
    EXCHANGE_TIMINGS_FILE,
    ExchangeTimings,
    ExchangeWorkerConfig,
    TimedExchange,
    load_exchange_timings,
    measure_encodings,
    summarize_turns,
)
from tests.support.errors import raises_code
from tests.unit.jobs.exchanges.test_plan_exchanges import build_step_timing

TIMED = TimedExchange(exchange="local:4", workers=2, batch=8)


def build_lap(seconds, steps, **values):
    return Lap(step=steps, steps=steps, seen=16 * steps, examples=16 * steps, workers=2, seconds=seconds, **values)


def test_ratio_of_laps_that_follow_each_other_is_free_of_the_drift_of_the_pace():
    turns = [
        (build_lap(pace * 0.2, 2), build_lap(pace * 0.2, 4, exchange_seconds=0.04, sent_bytes=500, data_seconds=0.0))
        for pace in (1.0, 1.3, 5.0)
    ]
    timing = summarize_turns(turns, TIMED, nodes=2)
    assert timing.ratio == pytest.approx(0.5) and timing.pace_sd == pytest.approx(0, abs=1e-12)
    assert timing.seconds == pytest.approx(0.065) and timing.exact_seconds == pytest.approx(0.13)
    assert (timing.exchange_seconds, timing.sent_bytes, timing.encode_seconds) == (pytest.approx(0.01), 500, 0)
    assert (timing.exchange, timing.nodes, timing.workers, timing.batch) == ("local:4", 2, 2, 8)


def test_timings_are_read_again_and_damaged_ones_refused(tmp_path):
    assert load_exchange_timings(tmp_path) == ExchangeTimings()
    row = replace(build_step_timing("local:4", 0.5), workers=2, batch=8)
    timings = ExchangeTimings(encode_seconds={"bf16": 0.001}, steps=[row])
    write_json(tmp_path / EXCHANGE_TIMINGS_FILE, asdict(timings))
    assert load_exchange_timings(tmp_path) == timings
    assert timings.find_steps("local:4", 2, 8) == row and timings.find_steps("local:4", 2, 16) is None
    (tmp_path / EXCHANGE_TIMINGS_FILE).write_text('{"steps": [{"exchange": 3}]}')
    with raises_code("file-damaged", EXCHANGE_TIMINGS_FILE):
        load_exchange_timings(tmp_path)


def test_workers_get_what_to_time_through_a_dictionary():
    config = ExchangeWorkerConfig(trial=TrainConfig(workload="digits", workers=2), exchanges=[TIMED], seconds=4.0)
    assert ExchangeWorkerConfig.from_dict(asdict(config)) == config


def test_encodings_are_timed_on_gradients_of_the_shapes_of_a_model():
    threads = torch.get_num_threads()
    measured = measure_encodings([(64, 32), (32,)], torch.float32, ["bf16", "powersgd:2"], 1, False)
    torch.set_num_threads(threads)
    assert set(measured.encode_seconds) == {"bf16", "powersgd:2"} and min(measured.encode_seconds.values()) > 0
    assert measured.seconds >= sum(measured.encode_seconds.values())
