"""Tests of the lines that describe an observation."""

from equipoise.observation.summary import HIDDEN_BY_NOISE, format_observation
from equipoise.observation.worker_lap import ONE_GRADIENT
from equipoise.runs.record import Lap

NORMS = {"local_norm": 3.0, "total_norm": 2.0, "local_batch": 8.0, "total_batch": 16, "draws": 1}


def build_lap(**norms):
    times = {"seconds": 0.4, "data_seconds": 0.1, "compute_seconds": 0.2, "exchange_seconds": 0.1}
    return Lap(step=20, steps=10, seen=320, examples=160, workers=2, **times, **norms)


def test_parts_are_means_per_step_and_the_noise_scale_is_in_examples():
    times, noise = format_observation([build_lap(**NORMS)] * 2, None).splitlines()
    assert times == "20 steps of 16 examples: compute 20 ms, exchange 10 ms, data 10 ms"
    assert noise == "noise scale: about 16 examples"  # variance 16, signal 1


def test_missing_noise_scale_has_its_reason():
    assert format_observation([build_lap()], ONE_GRADIENT).endswith(f"noise scale: not known: {ONE_GRADIENT}")
    hidden = build_lap(**NORMS | {"total_norm": 1.0})
    assert format_observation([hidden], None).endswith(HIDDEN_BY_NOISE)


def test_observation_without_steps_says_so():
    assert format_observation([], ONE_GRADIENT).startswith("no steps\n")


def test_step_in_the_singular_and_times_of_three_digits():
    lap = Lap(step=1, steps=1, seen=8, examples=8, workers=1, seconds=1.5, compute_seconds=1.23456)
    assert format_observation([lap], ONE_GRADIENT).startswith(
        "1 step of 8 examples: compute 1.23e+03 ms, exchange 0 ms, data 0 ms\n"
    )
