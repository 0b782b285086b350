"""The critical batch of each of several targets, and the schedule through them, as terminal text."""

from equipoise.formatting import format_units
from equipoise.planning.document import PlanDocument, TargetPlan
from equipoise.planning.targets.batch_schedule import BatchSchedule


def describe_targets(document: PlanDocument) -> list[str]:
    """Describe the critical batch of each target in one line, and the schedule in two; nothing for one target."""
    if not document.targets:
        return []
    batches = ", ".join(describe_critical_batch(target, *document.unit) for target in document.targets)
    lines = [f"critical batch: {batches}"]
    return lines + (describe_schedule(document.schedule) if document.schedule else [])


def describe_critical_batch(target: TargetPlan, unit: str, units_per_example: int) -> str:
    """Describe the critical batch of a target with its interval, as '26 (17 to 43) examples (1,664 tokens) at 2.4'."""
    batch = target.critical_batch
    if batch is None:
        return f"not known at {target.target:g}"
    units = format_units(round(batch.value), unit, units_per_example)
    return f"{batch.value:,.0f} ({batch.low:,.0f} to {batch.high:,.0f}) examples{units} at {target.target:g}"


def describe_schedule(schedule: BatchSchedule) -> list[str]:
    """Describe in two lines a plan whose batch grows on the way: what it gains, and what the prediction assumes."""
    return [
        f"a batch that grows on the way: {schedule.describe_gain()}",
        f"  it {schedule.note}; equipoise train --plan trains the plan with its constant batch",
    ]
