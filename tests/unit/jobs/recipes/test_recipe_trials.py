"""Trials of recipes: their options, folders and records, and what a sweep refuses."""

import time
from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.planning.recipe_choice.recipe_search import RecipeSearch, RecipeTrial
from equipoise.planning.search import Search
from equipoise.registries.sweep_recipes import parse_recipes
from equipoise.storage.atomic import write_json
from jobs.ray_tune.recipes.recipe_sweep import require_trainable_recipes
from jobs.ray_tune.recipes.recipe_trials import (
    PairingTime,
    RecipeSearchAdapter,
    RecipeStatus,
    RecipeTrials,
    build_recipe_trials,
)
from jobs.ray_tune.single_worker_trial import SingleWorkerTrial
from jobs.ray_tune.sweep_options import build_sweep_options
from jobs.ray_tune.trial_records import strip_recipe, trial_file_stem
from jobs.ray_tune.tuner import SweepTrials
from tests.support.errors import raises_code
from tests.support.trial_records import build_record

BASE = TrainConfig(workload="digits", seed=5).with_defaults()
RECIPES = parse_recipes(["lamb,mixup:0.2"])


def build_trials(folder):
    shared = {"base": BASE, "folder": folder, "workers_by_batch": {64: 2, 256: 2}, "slots": 2}
    plain = SweepTrials(**shared, max_unsplit_batch=512)
    by_recipe = {recipe.name: build_recipe_trials(plain, recipe) for recipe in RECIPES}
    return RecipeTrials(**shared, max_unsplit_batch=512, by_recipe=by_recipe)


def build_adapter(trials):
    searches = {recipe.name: Search([64, 256], 0.05, lambda batch: 0.01) for recipe in RECIPES}
    return RecipeSearchAdapter(RecipeSearch(searches), trials, RecipeStatus())


def write_trial(trials, suggestion, **changes):
    path = trials.record_path(suggestion)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = replace(build_record(0.01, 64), config=trials.build_trial(suggestion), **changes)
    write_json(path, record.to_json())
    return path


def test_trials_of_a_recipe_have_its_options_and_a_folder_of_their_own(tmp_path):
    trials = build_trials(tmp_path)
    plain, lamb = (trials.build_trial(RecipeTrial(name, 256, 0.1, 2)) for name in ("plain", "lamb"))
    assert lamb == replace(plain, optimizer="lamb") and plain.seed == lamb.seed == 7
    assert trials.record_path(RecipeTrial("plain", 64, 0.1, 0)) == tmp_path / "batch-64-lr-0.1-seed-5.json"
    path = trials.record_path(RecipeTrial("mixup:0.2", 64, 0.1, 0))
    assert path == tmp_path / "recipes" / "mixup-0.2" / "batch-64-lr-0.1-seed-5.json"


def test_blends_are_split_as_on_the_workers(tmp_path):
    trials = build_trials(tmp_path)
    plain, mixup = (trials.build_trial(RecipeTrial(name, 256, 0.1, 0)) for name in ("plain", "mixup:0.2"))
    assert (plain.batch_size, plain.grad_accumulation) == (256, 1)
    assert (mixup.batch_size, mixup.grad_accumulation) == (128, 2)


def test_records_of_all_recipes_are_read_again_and_never_mixed(tmp_path, capsys):
    trials = build_trials(tmp_path)
    reached = {"status": "reached_target", "examples_to_target": 500.0}
    write_trial(trials, RecipeTrial("plain", 64, 0.1, 0), **reached)
    write_trial(trials, RecipeTrial("mixup:0.2", 64, 0.1, 1), **reached)
    write_trial(trials, RecipeTrial("lamb", 64, 0.1, 0), status="max_examples")
    write_trial(trials, RecipeTrial("lamb", 64, 0.2, 0), status="cut_off")  # begins again
    adapter = build_adapter(trials)
    rows = adapter.finished_trials
    assert list(zip(rows.recipe, rows.seed, rows.reached, strict=True)) == [
        ("plain", 0, 1),
        ("lamb", 0, 0),
        ("mixup:0.2", 1, 1),
    ]
    adapter.sweep_status.show(rows, 0, [])
    lines = capsys.readouterr().out.splitlines()
    assert "lamb, global batch 64 at lr 0.1, seed 0: did not reach" in lines[1] and "500 examples" in lines[0]


def test_trial_that_ended_is_added_to_its_recipe(tmp_path):
    trials = build_trials(tmp_path)
    adapter = build_adapter(trials)
    suggestions = {}
    for index in range(3):
        adapter.suggest(f"trial-{index}")
        suggestions[f"trial-{index}"] = adapter.running_trials[f"trial-{index}"][0]
    assert {suggestion.recipe for suggestion in suggestions.values()} == {"plain", "lamb", "mixup:0.2"}
    for name, suggestion in suggestions.items():
        write_trial(trials, suggestion, status="reached_target", examples_to_target=400.0)
        adapter.on_trial_complete(name)
    assert sorted(adapter.finished_trials.recipe) == ["lamb", "mixup:0.2", "plain"]
    assert adapter.is_hopeless(RecipeTrial("lamb", 64, 0.1, 0), 1e6)


def test_file_of_another_recipe_is_refused(tmp_path):
    trials = build_trials(tmp_path)
    path = write_trial(trials, RecipeTrial("lamb", 64, 0.1, 0), status="max_examples")
    target = trials.record_path(RecipeTrial("mixup:0.2", 64, 0.1, 0))
    target.parent.mkdir(parents=True)
    path.rename(target)
    assert path.stem == trial_file_stem(trials.build_trial(RecipeTrial("lamb", 64, 0.1, 0)))
    with raises_code("run-mismatch", target):
        build_adapter(trials)


def test_processes_keep_the_data_of_our_workloads_from_one_recipe_to_the_next(tmp_path):
    trials = build_trials(tmp_path)
    configs = [trials.build_trial(RecipeTrial(recipe.name, 64, 0.1, 0)) for recipe in RECIPES]
    assert len({strip_recipe(replace(config, grad_accumulation=1, batch_size=1)) for config in configs}) == 1
    process = SingleWorkerTrial.__new__(SingleWorkerTrial)
    first, *others = (process._load_cached_workload(config) for config in configs)
    assert all(other is first for other in others)


@pytest.mark.parametrize(
    ("workload", "names", "words"),
    [
        ("text", "mixup:0.2", "cannot try the recipe mixup:0.2"),
        ("digits", "lamb,sgd", "the same as plain"),
        ("digits", "lars,lars:0.001", "the same as lars"),
    ],
)
def test_recipe_that_the_workload_cannot_have_or_has_already_is_refused(workload, names, words):
    base = TrainConfig(workload=workload, batch_size=8).with_defaults({"optimizer": "sgd"})
    with raises_code("option-conflict", words):
        require_trainable_recipes(base, parse_recipes([names]))


def test_time_for_pairs_is_the_last_part_of_that_of_the_trials():
    assert not PairingTime(time.time() + 1000, 0.4)()
    assert PairingTime(time.time() - 1, 0.4)() and PairingTime(time.time() + 1000, 1.0)()
    assert not PairingTime(float("inf"), 0.4)()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"recipes": "mixup:-1"}, "option-range", "mixup"),
        ({"recipes": "lion"}, "option-choice", "lion"),
        ({"recipes": ["lamb", "grow"]}, "option-choice", "--grow-batch"),
        ({"recipes": "lamb", "exhaustive": True}, "option-conflict", "--exhaustive"),
        ({"recipes": "lamb", "memory": "1GB"}, "option-conflict", "--memory"),
        ({"recipes": "lamb", "exchanges": "local:16"}, "option-conflict", "--exchanges local:16"),
    ],
)
def test_options_that_make_no_sweep_over_recipes_are_refused(options, code, words):
    with raises_code(code, words):
        build_sweep_options("digits", "x", [1, 2], options).validate()


def test_recipes_are_an_option_of_a_function_too():
    options = build_sweep_options("digits", "x", [1], {"recipes": ["lars:0.05", "lamb"]})
    options.validate()
    assert [recipe.name for recipe in options.parsed_recipes] == ["plain", "lars:0.05", "lamb"]
    assert build_sweep_options("digits", "x", [1], {}).parsed_recipes == ()
