"""The closed form, from two small batches, agrees with the measured peak of a larger one within a tenth."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.planning.memory.worker_memory import predict_worker_memory
from equipoise.training.loop import Training
from equipoise.training.memory.measure_pass import MeasuredModel
from equipoise.training.memory.measure_sizes import (
    BATCH_SIZES,
    measure_model_sizes,
    measure_small_passes,
)
from tests.support.block_models import residual, transformer
from tests.support.limited_batch import build_workload

CPU = torch.device("cpu")
CONFIG = TrainConfig(
    workload="tests.support.block_models:transformer", batch_size=24, max_examples=64, noise_scale_every=0
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "adamw", "grad_accumulation": 2},
        {"precision": "bf16"},
        {"precision": "fp64", "recompute": True},
        {"noise_scale_every": 1},
    ],
    ids=str,
)
def test_prediction_is_within_a_tenth_of_the_measured_peak(options):
    config, workload = replace(CONFIG, **options), build_workload()
    predicted = predict_worker_memory(measure_model_sizes(config, workload, CPU), config).total
    lap = next(Training(config, workload).laps())
    assert predicted == pytest.approx(lap.peak_bytes, rel=0.1)


def test_recomputed_blocks_keep_less_for_each_example():
    sizes = measure_model_sizes(replace(CONFIG, recompute=True), residual(), CPU)
    without = measure_model_sizes(CONFIG, residual(), CPU)
    assert sizes.kept_bytes_per_example < without.kept_bytes_per_example
    assert sizes.parameter_bytes == without.parameter_bytes == sizes.trainable_bytes
    assert without.pass_at(8) >= without.kept_at(8) > 0


def test_tensor_sharding_divides_convolutions():
    whole = measure_model_sizes(replace(CONFIG, workers=2), residual(), CPU)
    (part,) = measure_model_sizes(replace(CONFIG, workers=2, sharding="tensor:2"), residual(), CPU).parts
    convolutions = [layer for layer in residual().model().modules() if isinstance(layer, nn.Conv2d)]
    divided = sum(value.nbytes for layer in convolutions for value in layer.parameters())
    assert whole.parameter_bytes - part.parameter_bytes == divided / 2
    assert not whole.parts and part.kept_bytes_per_example > 0


def test_stages_have_the_weights_and_activations_of_the_whole_model():
    config = replace(CONFIG, workers=2, sharding="pipeline:2")
    sizes = measure_model_sizes(config, residual(), CPU)
    first, last = sizes.parts
    assert first.parameter_bytes + last.parameter_bytes == sizes.parameter_bytes
    assert first.buffer_bytes + last.buffer_bytes == sizes.buffer_bytes
    assert first.sent_bytes_per_example == last.received_bytes_per_example > 0
    assert first.received_bytes_per_example == last.sent_bytes_per_example == 0
    assert 0 < first.kept_bytes_per_example < sizes.pass_bytes_per_example
    assert sizes.parts_sharding == "pipeline:2" and first.example_bytes == last.example_bytes == sizes.example_bytes


def test_small_passes_are_measured_at_batches_that_fill_them():
    assert max(measure_small_passes(measured(build_workload()))) == max(BATCH_SIZES)
    assert max(measure_small_passes(measured(transformer()))) > max(BATCH_SIZES)  # of 0.2 MB with eight examples


def measured(workload) -> MeasuredModel:
    return MeasuredModel(config=CONFIG, workload=workload, model=workload.model(), device=CPU)
