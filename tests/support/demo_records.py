"""Records of a demo as it writes them, with the plan and its confirming run, and a check of their numbers."""

import pytest

from dashboards.demo_report import DemoRecords
from equipoise.bundle.engine_results import EngineEntry
from equipoise.bundle.evaluation import Evaluation
from equipoise.planning.confirmation import ConfirmationResult, PredictionCheck
from equipoise.planning.document import PlanDocument, PlanEntry, StepPrediction
from equipoise.planning.interval import IntervalEstimate
from tests.support.manifests import build_manifest

REQUESTS_AND_CORRECT = {
    "clean": (400, 388),
    "drift": (400, 148),
    "adapted": (400, 372),
    "again": (400, 390),
    "mixed": (400, 381),
}
WARMER = "warmer, 4,010 K"
VERDICTS = {
    "adapted": {
        "state": "ok",
        "why": "400 images look like the reference",
        "conditions": {"as published": 0.04, WARMER: 0.96},
    },
    "again": {
        "state": "ok",
        "why": "800 images look like the reference",
        "conditions": {"as published": 0.98, WARMER: 0.02},
    },
    "mixed": {"state": "drift", "why": "blur: softer edges", "conditions": {"as published": 0.49, WARMER: 0.51}},
}
PLAN = PlanEntry(
    nodes=1,
    workers=2,
    batch=24,
    global_batch=48,
    lr=0.137,
    seconds=IntervalEstimate(value=4.51, low=3.52, high=5.53),
    worker_seconds=9.02,
    step=StepPrediction(seconds=0.0015, compute=0.001, exchange=0.0005),
    examples=1000.0,
    measured=True,
    binding="compute",
    why="computing takes most of a step",
)
CONFIRMATION = ConfirmationResult(
    nodes=1,
    workers=2,
    batch=24,
    lr=0.137,
    seed=1000,
    outcome="reached target",
    seconds=4.74,
    predicted=PLAN.seconds,
    inside=True,
    examples=PredictionCheck(value=900.0, predicted=1000.0, ratio=0.9),
    step=PredictionCheck(value=0.0027, predicted=0.0015, ratio=1.8),
)
DOCUMENT = PlanDocument(plan=PLAN, front=(), warnings=(), status="confirmed", confirmations=(CONFIRMATION,))
RECORDS = {
    "sweep/plan.json": DOCUMENT.to_json(),
    "bundles/vending/bundle.json": build_manifest(
        metrics=Evaluation(0.978, {}, 0.05, 0.02, 1.25),
        engine=EngineEntry(name="onnxruntime", why="", table=[]),
        seen=5760,
    ).to_json(),
    "drift/verdict.json": {
        "state": "drift",
        "cause": "colour temperature",
        "why": "colour temperature 4010 K",
        "since": {"at": "2026-01-01T00:00:00+00:00", "images_ago": 397},
        "images": 811,
    },
    "story.json": {
        "demo": 1,
        "chapters": [{"title": name, "seconds": 51.0 + index} for index, name in enumerate("abcde")],
        "sent": {
            name: {"requests": requests, "right": correct, "accuracy": correct / requests, "unanswered": 0}
            for name, (requests, correct) in REQUESTS_AND_CORRECT.items()
        },
        "verdicts": VERDICTS,
        "swap": {"requests": 1234, "unanswered": 0},
        "labels": 100,
        "regained": (372 - 148) / (388 - 148),
        "seconds": 301.0,
    },
}


def require_numbers(records: DemoRecords) -> None:
    """Assert that accuracies and sums follow from the recorded counts."""
    story = records.story
    for answers in story.sent.values():
        assert answers.accuracy == answers.right / answers.requests
    clean, drift, adapted = (story.sent[name].quality for name in ("clean", "drift", "adapted"))
    assert story.regained == pytest.approx((adapted - drift) / (clean - drift))
    assert sum(chapter.seconds for chapter in story.chapters) <= story.seconds
