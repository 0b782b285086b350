"""Model card of a bundle: its figures are those of the manifest."""

from dataclasses import asdict, replace

import pytest

from equipoise.bundle.condition_entry import ConditionEntry
from equipoise.bundle.engine_results import EngineEntry
from equipoise.bundle.evaluation import Evaluation
from equipoise.config import TrainConfig
from equipoise.drift.adaptation.workload import CorruptionAmount, DriftCondition
from jobs.publishing.model_card import (
    format_adaptation,
    format_end_reason,
    format_initialization,
    format_split_sizes,
    render_model_card,
)
from tests.support.demo_records import PLAN
from tests.support.manifests import build_manifest

CONFIG = TrainConfig(workload="folder", lr=0.125, workers=2, batch_size=24, grad_accumulation=3, seed=7)
MANIFEST = build_manifest(
    metrics=Evaluation(0.9, {"cat": 1.0, "dog": 0.8}, calibration_error=0.05, calibrated_error=0.02, temperature=1.25),
    config=asdict(CONFIG),
    parameters=1234567,
    seen=6400,
    engine=EngineEntry(name="onnxruntime", why="it is fast", table=[]),
)


def read_sections(card):
    """Return the text of each section of a card by its title; the one before the first title has an empty one."""
    parts = card.split("\n## ")
    return {"": parts[0]} | {part.partition("\n")[0]: part.partition("\n")[2] for part in parts[1:]}


@pytest.fixture
def sections():
    return read_sections(render_model_card(MANIFEST, None))


def test_card_has_its_sections_in_order(sections):
    assert [*sections] == ["", "Data", "Evaluation", "Training", "Inference", "Limits"]
    assert sections[""].splitlines() == [
        "# pets",
        "",
        "Classifies images of 48x32 pixels into 2 classes, 3 channels.",
    ]


def test_card_gives_the_accuracy_by_class_and_the_calibration(sections):
    text = sections["Evaluation"]
    assert "Accuracy 90.0%." in text and "the temperature 1.25 before softmax" in text
    assert "calibration error is 2.0%; without the temperature it is 5.0%." in text
    table = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert table == [["class", "accuracy"], ["cat", "100.0%"], ["dog", "80.0%"]]


def test_card_gives_the_options_of_training(sections):
    text = sections["Training"]
    assert "Model of the workload with 1,234,567 parameters, 2 x 24 x 3 examples per step" in text
    assert (
        "learning rate 0.125, seed 7, 6,400 examples seen (its target of at least 0.9 on validation reached)." in text
    )
    assert "Published 2026-11-23T15:31:11+00:00." in text and "It was trained without a plan." in text
    named = render_model_card(replace(MANIFEST, config=asdict(replace(CONFIG, model="resnet18"))), None)
    assert "Model resnet18 with" in named


def test_card_gives_the_engine_with_its_reason(sections):
    assert sections["Inference"].strip() == "The engine is onnxruntime: it is fast. Measured on EPYC."
    assert "Workload `folder`: 80 train, 20 test examples." in sections["Data"]


def test_card_gives_the_reason_of_the_plan_and_the_drift():
    remedy = asdict(DriftCondition((CorruptionAmount("exposure", "darker", -1.0),)))
    text = read_sections(render_model_card(replace(MANIFEST, remedy=remedy), PLAN))["Training"]
    assert text.strip().splitlines()[-3:] == [
        f"The plan: {PLAN.why}",
        "",
        "Adapted to a drift of its requests: exposure darker -1.",
    ]


def test_card_lists_the_conditions_that_the_model_has_learned():
    changes = asdict(DriftCondition((CorruptionAmount("exposure", "darker", -1.0),)))
    conditions = (
        ConditionEntry(name="warmer, 4,400 K", images=1000, real_share=0.834, changes=changes),
        ConditionEntry(name="darker, -1 stops", images=300, real_share=0.0, changes=changes),
    )
    sections = read_sections(render_model_card(replace(MANIFEST, conditions=conditions), None))
    assert [*sections] == ["", "Data", "Evaluation", "Training", "Known conditions", "Inference", "Limits"]
    text = sections["Known conditions"]
    assert "`as published`" in text
    assert [line for line in text.splitlines() if line.startswith("| ")] == [
        "| condition | images | share of requests |",
        "| warmer, 4,400 K | 1,000 | 83% |",
        "| darker, -1 stops | 300 | 0% |",
    ]


def test_split_sizes_are_listed_in_their_order():
    assert format_split_sizes({"train": 60000, "test": 10}) == "60,000 train, 10 test"


@pytest.mark.parametrize(
    ("status", "verb"),
    [("reached_target", "reached"), ("max_examples", "not reached"), ("stopped_early", "not reached")],
)
def test_end_of_the_run_is_told_by_its_status(status, verb):
    manifest = replace(MANIFEST, status=status, target=0.96)
    assert format_end_reason(manifest) == f"its target of at least 0.96 on validation {verb}"
    falling = replace(manifest, target=0.2, lower_is_better=True)
    assert format_end_reason(falling) == f"its target of at most 0.2 on validation {verb}"
    assert format_end_reason(replace(manifest, target=None)) == "without a target"


@pytest.mark.parametrize(
    ("init_from", "frozen", "text"),
    [
        (None, 0, ""),
        ("torchvision", 0, ", started from torchvision"),
        ("bundles/pets/", 0, ", started from pets"),
        ("s3://bucket/runs/x", 2, ", started from x, the lowest 2 stages frozen"),
        (None, 2, ""),
    ],
)
def test_initial_weights_are_named(init_from, frozen, text):
    assert format_initialization(replace(CONFIG, init_from=init_from, freeze_stages=frozen)) == text


def test_corruption_without_a_detail_is_named_by_its_cause():
    _, text = format_adaptation(asdict(DriftCondition((CorruptionAmount("noise", "", 10.0),))))
    assert text.endswith("requests: noise 10.")


def test_adaptation_names_corruptions_and_class_shares():
    assert format_adaptation(None) == []
    condition = DriftCondition((CorruptionAmount("contrast", "lower", 0.51234),), {"cat": 2.0, "dog": 0.333})
    assert format_adaptation(asdict(condition)) == [
        "",
        "Adapted to a drift of its requests: contrast lower 0.512, cat 2 times as often, dog 0.33 times as often.",
    ]
