"""What training runs said of a plan: a sentence, and a table of the runs."""

from dashboards.page import NumberCell, SectionPart, Table, TableCell
from dashboards.panels.exchanges.time_estimates import label_exchange
from dashboards.theme import format_seconds, format_significant, format_time_interval
from equipoise.planning.confirmation import ConfirmationResult, find_run_of_plan
from equipoise.planning.document import PlanDocument

CONFIRMATION_COLUMNS = ["plan", "workers", "batch", "lr", "seed", "time", "predicted time", "outcome"]
EXCHANGE_PLACE = 4  # of the column on ways of exchange, in tables of runs that differ in it


def describe_plan_status(document: PlanDocument) -> str:
    """Return in a few sentences whether a run confirmed the plan, and what became of earlier ones."""
    runs = list(document.confirmations)
    own_run = find_run_of_plan(document.plan, runs) if document.plan else None
    if own_run is None:
        text = "Not confirmed: no training run has been made with this plan yet."
    else:
        runs.remove(own_run)
        text = f"{document.status.capitalize()}: {describe_run(own_run)}."
        if document.status == "not confirmed":
            text += " The prediction now counts this run in; none has been made since."
    return " ".join([text, *(f"{sentence}." for sentence in describe_other_runs(runs))])


def describe_other_runs(runs: list[ConfirmationResult]) -> list[str]:
    """Return which other plans were confirmed and which were refuted, and how, without full stops."""
    sentences = []
    subjects = {
        "confirmed": ("Another plan was", "Other plans were"),
        "refuted": ("An earlier plan was", "Earlier plans were"),
    }
    for status, (one, many) in subjects.items():
        plans = [f"{describe_setting(run)}, where {describe_run(run)}" for run in runs if run.status == status]
        if plans:
            sentences.append(f"{one if len(plans) == 1 else many} {status}: {'; '.join(plans)}")
    return sentences


def describe_setting(run: ConfirmationResult) -> str:
    """Return the setting of a run in a few words."""
    exchange = f", exchanging as {run.exchange}" if run.exchange else ""
    return f"{run.workers} x {run.batch} at lr {run.lr:.3g}{exchange}"


def describe_run(run: ConfirmationResult) -> str:
    """Return how a run compares with the predicted interval, as a clause."""
    predicted = f"the predicted {format_seconds(run.predicted.low)} to {format_seconds(run.predicted.high)}"
    if run.seconds is None:
        return f"a training run did not reach the target ({run.outcome}) instead of taking {predicted}"
    text = f"a training run took {format_seconds(run.seconds)} to the target, {run.side} {predicted}"
    if run.side == "inside" or run.step is None:
        return text
    return (
        f"{text}, with {run.examples.ratio:.2f} times the predicted examples and"
        f" {run.step.ratio:.2f} times the predicted time per step"
    )


def confirmation_tables(document: PlanDocument) -> list[SectionPart]:
    """Return the table of all runs that confirmed or refuted a plan; none without runs."""
    if not document.confirmations:
        return []
    rows: list[list[TableCell]] = [
        [
            run.status,
            run.workers,
            run.batch,
            NumberCell(run.lr, format_significant(run.lr)),
            str(run.seed),
            NumberCell(run.seconds, format_seconds(run.seconds)),
            NumberCell(run.predicted.value, format_time_interval(run.predicted)),
            run.outcome,
        ]
        for run in document.confirmations
    ]
    columns = list(CONFIRMATION_COLUMNS)
    if any(run.exchange for run in document.confirmations):
        columns.insert(EXCHANGE_PLACE, "exchange")
        for row, run in zip(rows, document.confirmations, strict=True):
            row.insert(EXCHANGE_PLACE, label_exchange(run.exchange))
    return [Table(name="confirmations", columns=columns, rows=rows)]
