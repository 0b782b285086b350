"""Model card of a bundle: data, evaluation, training, inference and limits, as Markdown for people."""

from collections.abc import Sequence

from equipoise.bundle.condition_entry import ConditionEntry
from equipoise.bundle.manifest import Manifest
from equipoise.config import TrainConfig
from equipoise.drift.adaptation.workload import DriftCondition
from equipoise.drift.charts.conditions import PUBLISHED_CONDITION
from equipoise.formatting import capitalize_first, format_number
from equipoise.planning.document import PlanEntry
from equipoise.type_aliases import JsonObject
from jobs.publishing.kinds.card_texts import LIMITS, describe_evaluation, describe_task


def render_model_card(manifest: Manifest, plan: PlanEntry | None, reference_notes: Sequence[str] = ()) -> str:
    """Render the model card of a bundle as Markdown: with its plan and sentences on its reference, if there are any."""
    config = manifest.decode_config()
    return "\n".join(
        [
            f"# {manifest.name}",
            "",
            describe_task(manifest),
            "",
            "## Data",
            "",
            f"Workload `{manifest.workload}`: {format_split_sizes(manifest.examples)} "
            "examples. The figures below are from the test split, "
            "which neither training nor calibration has used.",
            "",
            "## Evaluation",
            "",
            *describe_evaluation(manifest.metrics),
            "",
            "## Training",
            "",
            f"Model {config.model or 'of the workload'} with {manifest.parameters:,} parameters, "
            f"{config.workers} x {config.batch_size} x "
            f"{config.grad_accumulation} examples per step (workers x batch size x accumulation), learning "
            f"rate {config.lr:g}, seed {config.seed}, "
            f"{manifest.seen:,} examples seen ({format_end_reason(manifest)}){format_initialization(config)}. "
            f"Published {manifest.published}.",
            format_plan_reason(plan),
            *format_adaptation(manifest.remedy),
            *format_conditions(manifest.conditions),
            "",
            "## Inference",
            "",
            f"The engine is {manifest.engine.name}: {manifest.engine.why}. "
            f"Measured on {manifest.machine.processor}.",
            "",
            "## Limits",
            "",
            LIMITS[manifest.kind],
            *(line for note in reference_notes for line in ("", f"{capitalize_first(note)}.")),
            "",
        ]
    )  # fmt: skip


def format_split_sizes(examples: dict[str, int]) -> str:
    """Format the number of examples in each split."""
    return ", ".join(f"{count:,} {part}" for part, count in examples.items())


def format_end_reason(manifest: Manifest) -> str:
    """Describe whether the run reached its target metric; one without a target trains its number of examples."""
    if manifest.target is None:
        return "without a target"
    reached = manifest.status == "reached_target"
    return f"its target of {manifest.goal.describe()} on validation {'reached' if reached else 'not reached'}"


def format_initialization(config: TrainConfig) -> str:
    """Describe the weights that training started from; an empty string if they were random."""
    if not config.init_from:
        return ""
    frozen = f", the lowest {config.freeze_stages} stages frozen" if config.freeze_stages else ""
    return f", started from {config.init_from.rstrip('/').rpartition('/')[2]}{frozen}"


def format_plan_reason(plan: PlanEntry | None) -> str:
    """Describe why the plan chose these settings, or that there was no plan."""
    return f"The plan: {plan.why}" if plan else "It was trained without a plan."


def format_adaptation(remedy: JsonObject | None) -> list[str]:
    """Describe the drift that the model was adapted to, as lines; none if it was not adapted."""
    if remedy is None:
        return []
    condition = DriftCondition.from_json(remedy)
    changes = [
        " ".join(filter(None, (change.cause, change.detail, format_number(change.value))))  # some causes have no detail
        for change in condition.changes
    ]
    changes += [f"{name} {weight:.2g} times as often" for name, weight in (condition.weights or {}).items()]
    return ["", f"Adapted to a drift of its requests: {', '.join(changes)}."]


def format_conditions(conditions: Sequence[ConditionEntry]) -> list[str]:
    """Describe the conditions that the model knows, as lines; none if it knows that of its training data alone."""
    if not conditions:
        return []
    rows = [f"| {entry.name} | {entry.images:,} | {entry.real_share:.0%} |" for entry in conditions]
    return [
        "",
        "## Known conditions",
        "",
        f"Requests are compared with the nearest condition that the model knows: `{PUBLISHED_CONDITION}`, that of its "
        "reference split, or one that it was adapted to. The images of these are requests where there were enough, and "
        "were simulated otherwise.",
        "",
        "| condition | images | share of requests |",
        "|---|--:|--:|",
        *rows,
    ]
