"""What a sweep times of other ways of exchange: laps in turns with exact sums, and encodings."""

import time
from dataclasses import asdict, replace

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.planning.exchanges.training_options import replace_exchange
from equipoise.planning.parameter_servers.server_cost import server_cost
from equipoise.runs.record import Lap
from equipoise.storage.atomic import write_json
from equipoise.workloads import load_workload
from jobs.timing.exchange_step_timing import (
    EXCHANGE_TIMINGS_FILE,
    ExchangeTimings,
    ExchangeWorkerConfig,
    TimedExchange,
    load_exchange_timings,
    measure_encodings,
    summarize_turns,
)
from jobs.timing.step_bench import StepBench
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo
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


def time_with_servers(names):
    """Time steps with ways of exchange, each in turns with exact sums, and return what they took and sent."""
    trial = TrainConfig(workload="digits", workers=2)
    workload = load_workload(trial)
    rows = []
    for name in names:
        exact, other = (
            StepBench(options, workload, torch.device("cpu"), time.monotonic())
            for options in (trial, replace_exchange(trial, name))
        )
        other.probes[8] = exact.probe(8)
        generators = [bench.start_laps(8, 0.02) for bench in (exact, other)]
        turns = [tuple(next(laps) for laps in generators) for _ in range(2)]
        rows.append(summarize_turns(turns, TimedExchange(exchange=name, workers=2, batch=8), nodes=1))
    return rows, exact.gradient_bytes


@pytest.mark.slow
def test_steps_with_servers_are_timed_in_turns_with_exact_sums(tmp_path):
    (rows, size), _ = run_with_gloo(2, tmp_path, time_with_servers, ("server", "server/servers:1", "async:1"))
    assert [row.exchange for row in rows] == ["server", "server/servers:1", "async:1"]
    for row in rows[:2]:  # two workers: either server sends what it has not got, and what it has
        assert row.sent_bytes == server_cost(2, 0, size).max_sent_bytes == size
    assert all(row.seconds > 0 and row.encode_seconds == 0 for row in rows)
