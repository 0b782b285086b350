"""The closed form, from two small batches, agrees with the measured peak of a larger one within a tenth."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.planning.memory.worker_memory import predict_worker_memory
from equipoise.training.loop import Training
from equipoise.training.memory.measure_sizes import measure_model_sizes
from tests.support.block_models import residual
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
    sizes = measure_model_sizes(replace(CONFIG, workers=2, sharding="tensor:2"), residual(), CPU)
    convolutions = [layer for layer in residual().model().modules() if isinstance(layer, nn.Conv2d)]
    assert sizes.divided_bytes == sum(value.nbytes for layer in convolutions for value in layer.parameters())
    assert measure_model_sizes(CONFIG, residual(), CPU).divided_bytes == 0
