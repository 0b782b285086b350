"""Record of a training run in progress or at its end."""

from collections.abc import Sequence

from equipoise.hardware import describe_hardware
from equipoise.runs.record import ClassCount, Record
from equipoise.training.loop import Training


def build_run_record(
    training: Training, test: float | None = None, test_classes: Sequence[ClassCount] | None = None
) -> Record:
    """Build the record of what a run has measured so far, with its metric and counts on the test split if evaluated."""
    return Record(
        config=training.config,
        machine=describe_hardware(training.device),
        laps=training.finished_laps,
        status=training.status or "running",
        reason=training.reason,
        target=training.target.value,
        lower_is_better=training.target.lower_is_better,
        metric_name=training.target.metric_name,
        examples_to_target=training.examples_to_target,
        test=test,
        test_classes=test_classes,
        unit=training.workload.unit.name,
        units_per_example=training.workload.unit.per_example,
    )
