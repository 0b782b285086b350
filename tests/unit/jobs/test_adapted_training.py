"""Training by a recipe: its options, and the shift of the class prior, which needs no training."""

import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from equipoise.config import TrainConfig
from equipoise.drift.adaptation.workload import AdaptationRecipe, DriftCondition
from equipoise.planning.document import PlanDocument
from equipoise.runs.folder import read_finished_run, read_record
from equipoise.workloads import load_workload
from jobs.publishing.adaptation import build_adaptation_config, planned_batch_size, train_adapted_model
from tests.support.demo_records import PLAN
from tests.support.errors import raises_code
from tests.support.manifests import build_manifest

DIGITS = [str(digit) for digit in range(10)]
FIRST_CONFIG = TrainConfig(
    workload="digits",
    batch_size=48,
    grad_accumulation=4,
    lr=0.125,
    workers=3,
    target=0.9,
    patience=2,
    freeze_stages=1,
    max_examples=100,
)
WEIGHTS = {digit: 2.0 if digit == "3" else 0.5 for digit in DIGITS}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Write the weights of a model, and return what an adaptation needs of its bundle."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    tensors = {name: value.contiguous() for name, value in load_workload(FIRST_CONFIG).model().state_dict().items()}
    save_file(tensors, folder / "model.safetensors", {"classes": json.dumps(DIGITS)})
    manifest = build_manifest(classes=DIGITS, config=asdict(FIRST_CONFIG))
    return SimpleNamespace(folder=folder, classes=DIGITS, temperature=1.5, manifest=manifest)


@pytest.fixture
def work_folder(tmp_path):
    """Write a recipe for new class shares to a folder, and return the folder."""
    AdaptationRecipe("digits", "data", DriftCondition((), WEIGHTS)).write(tmp_path)
    return tmp_path


def test_options_are_those_of_the_first_training_but_for_fine_tuning(model, work_folder):
    config = build_adaptation_config(model, work_folder, epochs=3, workers=2)
    length = 4 * len(load_workload(FIRST_CONFIG).train)  # of each image four copies
    assert len(load_workload(config).train) == length
    assert config == replace(
        FIRST_CONFIG,
        grad_accumulation=1,
        workload=config.workload,
        data=str(work_folder),
        init_from=str(model.folder),
        workers=2,
        schedule="cosine",
        target=None,
        body_lr_scale=0.1,
        freeze_stages=0,
        max_examples=3 * length,
        eval_every=3 * length,
    )


def test_batch_size_is_that_of_the_plan_if_there_is_one(model):
    assert planned_batch_size(model, 17) == 17
    for plan, expected in ((PLAN, PLAN.batch), (None, 17)):
        document = PlanDocument(plan=plan, front=(), warnings=()).to_json()
        planned = SimpleNamespace(folder=model.folder, manifest=replace(model.manifest, plan=document))
        assert planned_batch_size(planned, 17) == expected
    broken = SimpleNamespace(folder=model.folder, manifest=replace(model.manifest, plan={"plan": 3}))
    with raises_code("plan-invalid", f"cannot adapt {model.folder} by its plan"):
        planned_batch_size(broken, 17)


def test_label_shift_changes_nothing_but_the_bias_of_the_classifier(model, work_folder):
    recipe = AdaptationRecipe("digits", "data", DriftCondition((), WEIGHTS))
    assert train_adapted_model(model, recipe, work_folder, epochs=2, workers=1)
    before, after = load_file(model.folder / "model.safetensors"), load_file(work_folder / "run" / "model.safetensors")
    assert before.keys() == after.keys()
    [changed] = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed.endswith(".bias")
    expected = [model.temperature * np.log(WEIGHTS[digit]) for digit in DIGITS]
    assert (after[changed] - before[changed]).tolist() == pytest.approx(expected, abs=1e-5)


def test_label_shift_leaves_a_run_that_can_be_published(model, work_folder):
    recipe = AdaptationRecipe("digits", "data", DriftCondition((), WEIGHTS))
    train_adapted_model(model, recipe, work_folder, epochs=2, workers=1)
    record = read_finished_run(work_folder / "run", "publish")
    assert record == read_record(work_folder / "run" / "record.json")
    assert record.config == build_adaptation_config(model, work_folder, epochs=2, workers=1)
    assert (record.status, record.target, record.test, record.seconds) == ("max_examples", None, None, 0)
