"""Small plan documents with round numbers, for tests of what is drawn and written of them."""

from equipoise.planning.document import IntervalEstimate, PlanDocument, PlanEntry, PlanOptionEntry, StepPrediction
from equipoise.planning.sections.examples_types import ExamplesPrediction, ExamplesSection
from equipoise.planning.sections.step_time_types import StepTimePrediction, StepTimeSection
from equipoise.storage.atomic import write_json


def build_interval(value, spread=0.2):
    """Build an estimate whose interval reaches from 20 % below to 20 % above the value."""
    return IntervalEstimate(value=value, low=value * (1 - spread), high=value * (1 + spread))


def build_option(workers=2, batch=16, seconds=10.0, kind=PlanOptionEntry, **changes):
    """Build a setting of a plan; its cost is its time multiplied by its workers."""
    fields = {
        "nodes": 1,
        "workers": workers,
        "batch": batch,
        "global_batch": workers * batch,
        "lr": 0.1,
        "seconds": build_interval(seconds),
        "worker_seconds": seconds * workers,
        "step": StepPrediction(seconds=0.02, compute=0.015, exchange=0.005),
        "examples": 1000.0,
        "measured": True,
        "binding": "compute",
    }
    return kind(**fields | changes)


def build_plan(**changes):
    """Build the recommended setting of a plan."""
    return build_option(kind=PlanEntry, **{"why": "it is the fastest"} | changes)


def build_step_prediction(workers, batch, seconds, nodes=1, measured=True, has_interval=True):
    """Build the predicted time of a step, with an interval of half to twice the time."""
    low, high = (seconds / 2, seconds * 2) if has_interval else (None, None)
    return StepTimePrediction(
        nodes=nodes, workers=workers, batch=batch, seconds=seconds, low=low, high=high, measured=measured
    )


def build_step_times(*predictions, **changes):
    """Build the fit of step times with these predictions."""
    fields = {
        "identifiable": True,
        "missing": (),
        "parameters": {"a": 0.002, "c": 0.0001, "g": 1.5},
        "links": {},
        "form": "ring",
        "error": 0.034,
        "predictions": predictions,
    }
    return StepTimeSection(**fields | changes)


def build_examples(*batches_and_examples, **changes):
    """Build the fit of the examples to the target, with an interval of half to twice each prediction."""
    predictions = tuple(
        ExamplesPrediction(global_batch=batch, examples=examples, low=examples / 2, high=examples * 2, lr=0.1)
        for batch, examples in batches_and_examples
    )
    fields = {
        "identifiable": True,
        "critical_batch": build_interval(100.0),
        "min_examples": build_interval(5000.0),
        "left_out": (),
        "predictions": predictions,
    }
    return ExamplesSection(**fields | changes)


def write_plan_json(path, plan=None, **contents):
    """Write a plan.json with a recommended plan and nothing that it was measured with, and return its path."""
    document = build_document(plan=build_plan(**plan) if plan else None).to_json()
    write_json(path, document | contents)
    return path


def build_document(**parts):
    """Build a plan document of these parts."""
    return PlanDocument(**{"plan": None, "front": (), "warnings": ()} | parts)
