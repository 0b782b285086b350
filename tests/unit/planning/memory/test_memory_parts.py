"""Parts of a worker's memory one by one: from which size, number of workers or option on each is there."""

from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.planning.memory.model_sizes import ModelSizes
from equipoise.planning.memory.worker_memory import (
    batch_bytes,
    copy_bytes,
    find_pass_peak,
    list_part_sizes,
    moment_bytes,
    predict_worker_memory,
    probe_bytes,
)

MIB = 1 << 20
SIZES = ModelSizes(
    parameter_bytes=9000,
    trainable_bytes=8000,
    buffer_bytes=500,
    factored_bytes=100,
    largest_unit_bytes=1000,
    example_bytes=10,
    kept_bytes=20,
    kept_bytes_per_example=3,
    pass_bytes=40,
    pass_bytes_per_example=5,
)
CONFIG = TrainConfig(workload="digits", batch_size=8, noise_scale_every=0)


def predict(trainable=8000, has_gpu=False, **options):
    sizes = replace(SIZES, trainable_bytes=trainable)
    return predict_worker_memory(sizes, replace(CONFIG, **options), has_gpu=has_gpu)


@pytest.mark.parametrize(
    ("in_flight", "micro_batches", "gradient", "peak"),
    [
        (1, 1, 100, (30, 70)),  # the gradient grows while activations go
        (1, 1, 20, (30, 0)),
        (1, 2, 20, (30, 20)),  # that of the first micro-batch lies beside the passes of the second
        (2, 2, 100, (30, 100)),  # in the last backward pass only one is in flight
        (2, 2, 5, (40, 0)),  # which is less than the first one with both
        (2, 3, 5, (40, 5)),
        (3, 3, 1, (50, 0)),
    ],
)
def test_peak_of_the_passes(in_flight, micro_batches, gradient, peak):
    found = find_pass_peak(10, 30, gradient, in_flight, micro_batches)
    assert found == peak and found.total == sum(peak)


def test_gradients_of_one_worker_have_buckets_beyond_a_mebibyte_and_not_on_a_gpu():
    assert predict(MIB).buckets == 0 and predict(MIB + 4).buckets == MIB + 4
    assert predict(MIB + 4, has_gpu=True).buckets == 0
    assert predict(MIB).gradients == MIB - SIZES.pass_at(8) and predict(MIB + 4).gradients == 0  # moved into buckets
    assert predict(MIB + 4, grad_accumulation=2).gradients == MIB + 4


@pytest.mark.parametrize("has_gpu", [False, True])
def test_gradients_of_several_workers_have_buckets(has_gpu):
    assert predict(4, has_gpu, workers=2).buckets == 4
    assert predict(MIB + 4, has_gpu, workers=2).buckets == MIB + 4
    assert predict(4, has_gpu, workers=2, sharding="full").buckets == 0


@pytest.mark.parametrize("workers", [2, 4])
def test_small_gradients_are_sent_to_all_with_a_copy_for_each_worker(workers):
    largest = (1 << 18) // workers
    assert predict(largest, workers=workers).exchange == 1 << 18
    assert predict(largest + 4, workers=workers).exchange == 0
    assert predict(largest, has_gpu=True, workers=workers).exchange == 0
    assert predict(largest, workers=workers, sharding="full").exchange == 0
    assert predict(largest, workers=1).exchange == 0


def test_full_sharding_sums_a_part_of_its_largest_unit_beside_earlier_micro_batches():
    assert predict(workers=2, sharding="full", grad_accumulation=2).exchange == 500
    assert predict(workers=2, sharding="full").exchange == 0
    assert predict(workers=1, sharding="full", grad_accumulation=2).exchange == 0
    assert (predict(workers=2, sharding="full").units, predict(workers=1, sharding="full").units) == (2000, 0)


def test_replicas_of_divided_layers_exchange_as_workers_do():
    pair, four = (predict(workers=workers, sharding="tensor:2") for workers in (2, 4))
    assert (pair.exchange, pair.buckets) == (0, 0)  # one replica
    assert (four.exchange, four.buckets) == (2 * 8000, 8000)


def test_weights_are_parameters_and_buffers():
    assert predict().weights == 9500 and predict(workers=2, sharding="full").weights == 5000
    assert predict(workers=4, sharding="full:2").weights == 5000
    assert predict(workers=2, sharding="optimizer").weights == 9500


def test_halves_of_a_batch_measure_the_noise_scale_of_exact_steps_of_one_worker():
    def probe(**options):
        return probe_bytes(SIZES, replace(CONFIG, **{"noise_scale_every": 1, **options}))

    assert probe() == 8000 + 2 * 8000 + 500
    large_pass = replace(SIZES, pass_bytes=16_001 - 4 * 5)
    assert probe_bytes(large_pass, replace(CONFIG, noise_scale_every=100)) == 8000 + 16_001 + 500
    assert probe(batch_size=2) > 0 and probe(batch_size=1) == 0
    assert probe(noise_scale_every=0) == 0 and probe(workers=2) == 0 and probe(sync="local:4") == 0
    extra = predict(noise_scale_every=1).noise_probe
    assert extra == 24_500 - max(SIZES.pass_at(8), 8000)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 0),
        ({"keep": "best"}, 9500),
        ({"keep": "best", "workers": 2, "sharding": "full"}, 5000),
        ({"compression": "int8"}, 8000),
        ({"compression": "int8", "error_feedback": False}, 0),
        ({"compression": "bf16"}, 0),
        ({"compression": "topk:0.1"}, 8000),
        ({"sync": "diloco:4"}, 16_000),
        ({"sync": "local:4"}, 0),
        ({"average_weights": 0.5}, 8000),
        ({"keep": "best", "sync": "diloco:4", "compression": "int8"}, 33_500),
    ],
)
def test_copies_that_options_ask_for(options, size):
    assert predict(**options).copies == size
    others = predict(**options | {"keep": "last"}).copies
    assert predict(has_gpu=True, **options).copies == others  # beside a GPU, main memory has the best weights


def test_state_of_the_optimizer_follows_the_gradient_that_a_worker_holds():
    def moments(gradient, **options):
        return moment_bytes(SIZES, replace(CONFIG, **options), gradient)

    assert moments(4000, optimizer="adafactor") == 50
    assert moment_bytes(replace(SIZES, trainable_bytes=0), replace(CONFIG, optimizer="adafactor"), 0) == 0
    assert moments(4000) == 4000 and moments(4000, momentum=0.0) == 0  # sgd if none is given
    assert moments(4000, optimizer="adamw", momentum=0.0) == 8000
    assert predict(workers=2, sharding="full", optimizer="adamw").moments == 8000
    assert predict(workers=2, sharding="optimizer").moments == 4000


def test_inputs_of_micro_batches_in_flight_are_ready():
    assert batch_bytes(SIZES, batch_size=8, micro_batches=6, in_flight=3) == 3 * 80
    read_ahead = replace(SIZES, input_bytes=1 << 10)
    assert batch_bytes(read_ahead, 8, 2, 1) == 64 * 2 * 80  # 1 MiB of inputs holds 64 steps
    assert batch_bytes(read_ahead, 1 << 10, 2, 1) == 2 * 10 * (1 << 10)  # and at least one


def test_stages_that_were_not_measured_are_equal_shares():
    config = replace(CONFIG, workers=4, sharding="pipeline:4")
    stages = list_part_sizes(SIZES, config)
    assert len(stages) == 4 and all(stage == stages[0] for stage in stages)
    stage = stages[0]
    assert (stage.parameter_bytes, stage.trainable_bytes, stage.factored_bytes) == (2250, 2000, 25)
    assert stage.pass_at(8) == SIZES.pass_at(8) / 4 and stage.kept_at(8) == SIZES.kept_at(8) / 4
    assert (stage.buffer_bytes, stage.example_bytes) == (500, 10)
    assert list_part_sizes(SIZES, CONFIG) == [SIZES]


def test_values_between_stages_are_there_for_a_batch():
    ends = replace(SIZES, received_bytes_per_example=7, sent_bytes_per_example=11)
    sizes = replace(SIZES, parts=(ends, ends), parts_sharding="pipeline:2")
    config = replace(CONFIG, workers=2, sharding="pipeline:2", grad_accumulation=2)
    assert predict_worker_memory(sizes, config).exchange == 8 * (2 * 7 + 11)
    assert copy_bytes(sizes, config, 1.0, has_gpu=False) == 0
