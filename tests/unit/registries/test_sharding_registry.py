"""Values of --sharding: exactly which texts are taken, and which workers and options each excludes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.registries.sharding_registry import (
    ShardingMethod,
    parse_sharding,
    require_divisible_workers,
    require_elastic_sharding,
    require_runnable_sharding,
)
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    ("text", "method", "splits_layers"),
    [
        ("none", ("none", 0), False),
        ("optimizer", ("optimizer", 0), False),
        ("full", ("full", 0), False),
        ("full:2", ("full", 2), False),
        ("tensor:2", ("tensor", 2), True),
        ("pipeline:16", ("pipeline", 16), True),
    ],
)
def test_a_sharding_is_parsed(text, method, splits_layers):
    assert parse_sharding(text) == method and parse_sharding(text).splits_layers == splits_layers


@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("", "full"),
        ("both:2", "full"),
        ("none:2", "full"),
        ("optimizer:2", "full"),
        ("full:", "full:2"),
        ("full:1", "full:2"),
        ("tensor", "tensor:2"),
        ("tensor:1", "tensor:2"),
        ("pipeline", "pipeline:2"),
        ("pipeline:2.5", "pipeline:2"),
    ],
)
def test_other_texts_are_refused_with_what_was_probably_meant(text, example):
    with raises_code("option-choice") as refusal:
        parse_sharding(text)
    assert refusal.value.remedy == f"write it such as {example}"


def test_a_refusal_shows_no_more_than_forty_characters_of_the_text():
    with raises_code("option-choice", f"got '{'x' * 40}'"):
        parse_sharding("x" * 41)
    with raises_code("option-choice", "got '\\u2014'"):
        parse_sharding("\u2014")


@given(st.integers(1, 64), st.integers(2, 64))
def test_workers_form_whole_groups_and_a_refusal_names_the_nearest_numbers_that_do(workers, size):
    sharding = ShardingMethod("tensor", size)
    if workers % size == 0:
        require_divisible_workers(sharding, workers)
        return
    with raises_code("sharding-unusable", f"{workers} workers into groups of {size}") as refusal:
        require_divisible_workers(sharding, workers)
    below, above = workers - workers % size, workers + size - workers % size
    expected = f"{below} or {above}" if below else str(above)
    assert refusal.value.remedy == f"choose --workers {expected}"


def test_sharding_over_all_workers_takes_any_number():
    for workers in (1, 2, 7):
        require_divisible_workers(ShardingMethod("full"), workers)
        require_elastic_sharding(ShardingMethod("full"), 1, workers)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(2, 4))
def test_an_elastic_run_needs_whole_groups_of_every_number_that_it_may_get(min_workers, workers, size):
    possible = [number for number in range(min_workers, workers) if number > 1 and number % size]
    if not possible:
        require_elastic_sharding(ShardingMethod("full", size), min_workers, workers)
        return
    with raises_code("sharding-unusable", f"{min_workers}:{workers}", f"{possible[0]} workers", f"groups of {size}"):
        require_elastic_sharding(ShardingMethod("full", size), min_workers, workers)


def require(text, workers=4, sync="step", compression="none", all_reduce="backend", optimizer="sgd"):
    require_runnable_sharding(parse_sharding(text), workers, sync, compression, all_reduce, optimizer)


@pytest.mark.parametrize("text", ["optimizer", "full", "full:2", "tensor:4", "pipeline:2"])
def test_sharded_workers_exchange_exact_gradients_in_every_step(text):
    require(text)
    with raises_code("option-conflict", "--sync local:2", f"--sharding {text}:"):
        require(text, sync="local:2")
    with raises_code("option-conflict", "--compression int8", f"--sharding {text}:"):
        require(text, compression="int8")


@pytest.mark.parametrize("text", ["full:2", "tensor:4", "pipeline:2"])
def test_groups_of_a_sharding_divide_the_workers(text):
    with raises_code("sharding-unusable", "3 workers"):
        require(text, workers=3)


@pytest.mark.parametrize(
    ("text", "optimizer", "instead"),
    [("full", "adafactor", "adamw"), ("tensor:2", "lars", "sgd"), ("full:2", "lamb", "adamw")],
)
def test_optimizers_of_whole_matrices_are_refused_where_workers_hold_parts(text, optimizer, instead):
    with raises_code("option-conflict", f"--optimizer {optimizer}", f"choose --optimizer {instead},"):
        require(text, optimizer=optimizer)
    for other in ("optimizer", "pipeline:2", "none"):
        require(other, optimizer=optimizer)
    require(text, optimizer=None)  # a workload fills it in later


def test_only_parts_of_the_optimizer_are_summed_by_an_all_reduce_of_choice():
    for text in ("full", "tensor:2", "pipeline:2"):
        with raises_code("option-conflict", "--all-reduce ring", text):
            require(text, all_reduce="ring")
    for text in ("none", "optimizer"):
        require(text, all_reduce="ring")


def test_without_sharding_everything_else_is_allowed():
    require("none", 3, "local:2", "int8", "ring", "lamb")
