"""What --sharding makes of a model is said before the workers start, and what cannot be divided is refused there."""

import pytest
from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.sharding.sharding_notes import describe_shared_statistics
from equipoise.workloads import load_workload
from jobs.ray_train.run_notes import describe_exchange, describe_interval, warn_of_statistics
from tests.support.errors import raises_code

GPT = {"workload": "text", "model": "gpt:2x16", "data": "examples/sklearn_program.py"}


def describe(workers, **options):
    config, workload = load(workers, **options)
    return describe_exchange(config, workload)


def load(workers, **options):
    config = TrainConfig(**{"workload": "digits"} | options, workers=workers, batch_size=2)
    workload = load_workload(config)
    return config.with_defaults(workload.defaults), workload


def test_tensor_parallelism_says_what_it_divides():
    assert describe(2, sharding="tensor:2") == "dividing 4 layers with 96% of the weights over 2 workers"
    assert describe(2) == ""
    with raises_code("sharding-unusable", "body.7", "120 units", "tensor:7"):
        describe(7, sharding="tensor:7")


def test_parts_of_weights_and_state_are_said_in_bytes():
    """LeNet of digits has 85,544 bytes of weights in layers with even rows; the largest has 84 x 121 weights."""
    assert describe(2, sharding="optimizer") == (
        "each of 2 workers keeps the optimizer's state of at most 42.7 KiB of 83.5 KiB of weights"
    )
    assert describe(2, sharding="full") == (
        "each of 2 workers keeps 41.8 KiB of 83.5 KiB of weights, and gathers units of at most 39.7 KiB"
    )
    assert describe(4, sharding="full:2", precision="fp64") == (
        "each of 4 workers keeps 83.5 KiB of 167 KiB of weights, and gathers units of at most 79.4 KiB; 2 replicas"
    )


def test_pipeline_says_how_many_pieces_its_stages_are_made_of():
    note = describe(4, sharding="pipeline:2", **GPT)
    assert note.startswith("cutting") and "into 2 stages" in note and note.endswith("2 replicas")


@pytest.mark.parametrize(
    ("workers", "options"),
    [(9, {"sharding": "pipeline:9", **GPT}), (3, {"sharding": "tensor:3", **GPT}), (30, {"sharding": "pipeline:30"})],
)
def test_model_that_cannot_be_divided_is_refused_before_workers_start(workers, options):
    with raises_code("sharding-unusable", options["sharding"]):
        describe(workers, **options)


def test_recomputation_and_stages_that_cannot_be_are_refused_before_workers_start():
    with raises_code("model-invalid", "--recompute"):
        describe(1, recompute=True)
    with raises_code("option-conflict", "--compile"):
        describe(1, recompute=True, compile=True, **GPT)
    with raises_code("option-conflict", "--compile"):
        describe(2, sharding="pipeline:2", compile=True, **GPT)
    assert describe(1, recompute=True, **GPT) == ""


def test_batch_normalisation_of_workers_that_share_examples_is_said():
    config, _ = load(4, sharding="pipeline:2")
    norm = nn.BatchNorm1d(4)
    assert "2 times as many" in describe_shared_statistics(config, nn.Sequential(norm), [])
    assert (
        describe_shared_statistics(config, nn.Sequential(norm), [norm]) == ""
    )  # frozen, it has no statistics to follow
    assert describe_shared_statistics(config, nn.Sequential(nn.LayerNorm(4)), []) == ""
    assert describe_shared_statistics(load(4, sharding="full")[0], nn.Sequential(norm), []) == ""


def test_models_without_batch_normalisation_have_no_warning():
    assert warn_of_statistics(*load(2, sharding="tensor:2")) == ""


def test_workers_of_a_run_shorter_than_an_interval_are_averaged_once_and_it_says_so():
    config = TrainConfig(workload="digits", sync="local:8", workers=2, batch_size=4)
    assert describe_interval(config, 65) == ""
    assert describe_interval(config, 64) == (
        "--sync local:8 would average the workers' weights every 64 examples: they are averaged once, at the end of the"
        " run after 64"
    )
    assert describe_interval(TrainConfig(workload="digits", sync="step"), 1) == ""
