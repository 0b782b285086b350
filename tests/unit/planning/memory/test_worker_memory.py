"""Memory of a worker by closed form, against the formulas of ZeRO, GPipe and 1F1B; and the largest batch in a limit."""

from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.planning.memory.largest_batch import bisect_largest, find_largest_batch
from equipoise.planning.memory.model_sizes import ModelSizes
from equipoise.planning.memory.worker_memory import WorkerMemory, predict_worker_memory

W, UNIT = 96_000_000, 8_000_000
SIZES = ModelSizes(
    parameter_bytes=W,
    trainable_bytes=W,
    factored_bytes=100_000,
    largest_unit_bytes=UNIT,
    example_bytes=1 << 20,
    kept_bytes=0,
    kept_bytes_per_example=2e6,
    pass_bytes=1e6,
    pass_bytes_per_example=3e6,
)
CONFIG = TrainConfig(workload="digits", batch_size=8, noise_scale_every=0)


def predict(**options) -> WorkerMemory:
    return predict_worker_memory(SIZES, replace(CONFIG, **options))


@pytest.mark.parametrize(
    ("options", "moments"),
    [
        ({"momentum": 0.0}, 0),
        ({}, W),
        ({"optimizer": "adamw"}, 2 * W),
        ({"optimizer": "lars"}, W),
        ({"optimizer": "lars", "momentum": 0.0}, 0),
        ({"optimizer": "lamb"}, 2 * W),
        ({"optimizer": "adafactor"}, 100_000),
    ],
)
def test_one_worker_holds_weights_gradients_moments_and_activations(options, moments):
    memory = predict(**options)
    assert memory.moments == moments
    assert memory.total == W + W + moments + SIZES.pass_at(8) + memory.batch


def test_accumulated_gradients_lie_beside_their_buckets():
    assert predict(grad_accumulation=2).gradients == W and predict().gradients == 0


def test_optimizer_sharding_divides_the_moments_alone():
    whole, parts = predict(workers=4, optimizer="adamw"), predict(workers=4, optimizer="adamw", sharding="optimizer")
    assert parts.moments == whole.moments / 4 and whole.total - parts.total == 1.5 * W


@pytest.mark.parametrize(("sharding", "parts"), [("full", 4), ("full:2", 2)])
def test_full_sharding_divides_all_but_two_units(sharding, parts):
    memory = predict(workers=4, optimizer="adamw", sharding=sharding)
    assert memory.weights + memory.gradients + memory.buckets + memory.moments == 4 * W / parts
    assert memory.units == 2 * UNIT and memory.exchange == 0
    assert predict(workers=4, sharding=sharding, grad_accumulation=2).exchange == UNIT / parts


def build_part(share: float, **sizes) -> ModelSizes:
    return replace(SIZES, parameter_bytes=round(share * W), trainable_bytes=round(share * W), **sizes)


def test_tensor_sharding_divides_its_layers():
    part = build_part(0.75, pass_bytes_per_example=2e6)
    sizes = replace(SIZES, parts=(part,), parts_sharding="tensor:2")
    config = replace(CONFIG, workers=2, sharding="tensor:2")
    memory = predict_worker_memory(sizes, config)
    assert memory.weights == memory.gradients == memory.moments == 0.75 * W and memory.buckets == W * 0.75
    assert memory.activations == part.pass_at(8)
    other = replace(config, workers=4, sharding="tensor:4")  # whose parts were not measured
    assert predict_worker_memory(sizes, other).weights == W


@pytest.mark.parametrize(("schedule", "in_flight"), [("gpipe", 8), ("1f1b", 4)])
def test_pipeline_keeps_the_activations_of_micro_batches_in_flight(schedule, in_flight):
    memory = predict(workers=4, sharding="pipeline:4", pipeline_schedule=schedule, grad_accumulation=2)
    kept, whole_pass = SIZES.kept_at(8), SIZES.pass_at(8)
    # with 1F1B as many are in flight again, beside the gradient of the first
    assert memory.activations == pytest.approx(
        (whole_pass + (in_flight - 1) * kept) / 4 - (schedule == "gpipe") * kept / 4
    )
    assert memory.weights == memory.gradients == W / 4


def test_memory_of_a_pipeline_is_that_of_its_largest_stage():
    early = build_part(0.25, kept_bytes_per_example=2e6, sent_bytes_per_example=1000.0)
    late = build_part(0.75, kept_bytes_per_example=1e6, received_bytes_per_example=1000.0, example_bytes=0)
    sizes = replace(SIZES, parts=(early, late), parts_sharding="pipeline:2")
    config = replace(CONFIG, workers=2, sharding="pipeline:2", grad_accumulation=2, momentum=0.0)
    memory = predict_worker_memory(sizes, config)
    assert memory.weights == memory.gradients == 0.75 * W and memory.batch == 0
    assert memory.exchange == 8 * 2 * 1000 and memory.activations == late.pass_at(8)
    heavy = replace(sizes, parts=(replace(early, kept_bytes_per_example=1e9), late))
    memory = predict_worker_memory(heavy, config)  # the first stage has two micro-batches in flight
    assert memory.weights == 0.25 * W and memory.exchange == 8 * 1000
    assert memory.activations == early.pass_at(8) + 8e9


def test_small_steps_are_ready_together_with_their_targets():
    sizes = replace(SIZES, example_bytes=3000, input_bytes=1000)
    steps = (1 << 20) // (8 * 1000)
    assert predict_worker_memory(sizes, CONFIG).batch == steps * 8 * 3000
    assert predict_worker_memory(replace(sizes, input_bytes=0), CONFIG).batch == 8 * 3000  # read one by one
    assert predict_worker_memory(sizes, replace(CONFIG, batch_size=2048)).batch == 2048 * 3000


def test_average_of_the_weights_is_a_copy_of_what_a_worker_holds():
    assert predict(average_weights=0.9).copies == W
    assert predict(average_weights=0.9, workers=2, sharding="full").copies == W / 2


def test_noise_probe_takes_three_gradients():
    memory = predict(noise_scale_every=100)
    assert memory.noise_probe + memory.activations == 3 * W
    assert predict(noise_scale_every=100, workers=2).noise_probe == 0


def test_largest_batch_is_the_last_that_fits():
    limit = 5 * W
    found = find_largest_batch(SIZES, CONFIG, limit, margin=0.1)
    assert predict(batch_size=found).total <= 0.9 * limit < predict(batch_size=found + 1).total
    assert find_largest_batch(SIZES, CONFIG, W) == 0


def test_measured_peak_moves_the_closed_form():
    found = find_largest_batch(SIZES, CONFIG, 5 * W)
    more = {8: predict().total + 4e7}
    shifted = find_largest_batch(SIZES, CONFIG, 5 * W, measured_peaks=more)
    assert found - shifted == pytest.approx(4e7 / (3e6 + SIZES.example_bytes), abs=1)


@pytest.mark.parametrize("largest", [0, 1, 2, 7, 8, 1000])
def test_bisection_finds_any_bound(largest):
    assert bisect_largest(lambda size: size <= largest) == largest
