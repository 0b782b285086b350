"""Contents of plan.json and the tables beside it as data frames: both curves, their product, learning rates."""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from equipoise.formatting import pluralize
from equipoise.planning.document import PlanDocument, PredictedSetting

CANDIDATE_COLUMNS = (
    *("nodes", "workers", "batch", "global_batch", "lr", "seconds", "low", "high"),
    *("worker_seconds", "measured", "binding"),
)


def predicted_step_seconds(document: PlanDocument) -> pd.DataFrame:
    """Return the predicted seconds per step, with interval, by cluster shape and batch size."""
    predictions = document.system.fit_predictions if document.system else ()
    rows = [asdict(row) for row in predictions if row.seconds is not None]
    return pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds", "low", "high", "measured"])


def predicted_step_times(document: PlanDocument) -> pd.DataFrame:
    """Return the predicted seconds per example, with interval, by cluster shape and batch size."""
    table = predicted_step_seconds(document)
    global_batch = table.workers * table.batch
    for name in ("seconds", "low", "high"):
        table[name] = table[name].astype(float) / global_batch
    table.insert(3, "global_batch", global_batch)
    return table


def measured_step_times(step_times: pd.DataFrame) -> pd.DataFrame:
    """Return the measured seconds per example, from rows of system.csv: the median of each setting."""
    medians = step_times.groupby(["nodes", "workers", "batch"], as_index=False)["seconds"].median()
    global_batch = medians.workers * medians.batch
    table: pd.DataFrame = medians.assign(global_batch=global_batch, seconds=medians.seconds / global_batch)
    return table


def predicted_examples(document: PlanDocument) -> pd.DataFrame:
    """Return the predicted examples to the target, with interval, by global batch."""
    predictions = document.statistical.predictions if document.statistical else ()
    rows = [asdict(row) for row in predictions if row.examples is not None]
    return pd.DataFrame(rows, columns=["global_batch", "examples", "low", "high", "lr"])


def mark_best_lr(trials: pd.DataFrame) -> pd.DataFrame:
    """Add the column `best` to trials of statistical.csv: whether their learning rate is the best of their batch."""
    keyed = trials.assign(lr=pd.to_numeric(trials.lr, errors="coerce").fillna(0.0))
    marked = keyed.assign(best=False)
    for _, group in keyed.groupby("global_batch"):
        marked.loc[group.index, "best"] = group.lr == best_lr(group)
    return marked


def best_lr(trials: pd.DataFrame) -> float:
    """Return the learning rate with which the trials of one batch needed the fewest examples to the target.

    Rates whose trials all reached the target come first; a trial that did not counts with the examples it had seen.
    """
    score = trials.assign(logs=np.log(trials.examples.astype(float)), short=1.0 - trials.reached)
    by_lr = score.groupby("lr")[["short", "logs"]].mean()
    return float(by_lr.sort_values(["short", "logs"]).index[0])


def candidate_plans(document: PlanDocument) -> pd.DataFrame:
    """Return every candidate plan on the device of the step times: time to the target with interval, and cost."""
    device = document.system.device if document.system else None
    return settings_to_table([option for option in document.options if option.device == device])


def settings_to_table(settings: Sequence[PredictedSetting]) -> pd.DataFrame:
    """Return predicted settings as rows: time to the target with interval, and cost in worker-seconds."""
    rows = [vars(setting) | vars(setting.seconds) | {"seconds": setting.seconds.value} for setting in settings]
    return pd.DataFrame(rows, columns=[*CANDIDATE_COLUMNS])


def settings_by_device(settings: Sequence[PredictedSetting], in_dollars: bool) -> pd.DataFrame:
    """Return predicted settings as rows with their device, empty for none, and their `cost`."""
    table = settings_to_table(settings)
    dollars = pd.Series([setting.dollars for setting in settings], index=table.index, dtype=float)
    return table.assign(
        device=[setting.device or "" for setting in settings], cost=dollars if in_dollars else table.worker_seconds
    )


def has_cost_in_dollars(document: PlanDocument) -> bool:
    """Return whether the cost of all settings is known in dollars."""
    return bool(document.options) and all(option.dollars is not None for option in document.options)


def group_by_cluster_shape(table: pd.DataFrame) -> dict[tuple[int, int], pd.DataFrame]:
    """Split a table by cluster shape (nodes, workers), each part sorted by global batch."""
    ordered = table.sort_values("global_batch")
    shapes = ordered[["nodes", "workers"]].drop_duplicates().sort_values(["nodes", "workers"]).astype(int)
    return {
        (nodes, workers): ordered[(ordered.nodes == nodes) & (ordered.workers == workers)]
        for nodes, workers in shapes.itertuples(index=False, name=None)
    }


def lr_ratios(trials: pd.DataFrame) -> pd.DataFrame:
    """Return, by batch and learning rate, the examples relative to the best rate of the batch (column `more`).

    `inside` says whether both lower and higher rates than the best were tried at the batch.
    """
    keyed = mark_best_lr(trials)
    rows = []
    for batch, group in keyed[keyed.lr > 0].groupby("global_batch"):
        by_lr = group.assign(logs=np.log(group.examples.astype(float))).groupby("lr")
        means, reached, best = by_lr.logs.mean(), by_lr.reached.mean(), best_lr(group)
        inside = float(means.index.min()) < best < float(means.index.max())
        rows += [
            (
                batch,
                lr,
                float(np.exp(means[lr] - means[best])),
                reached[lr],
                len(by_lr.get_group(lr)),
                lr == best,
                inside,
            )
            for lr in means.index
        ]
    return pd.DataFrame(rows, columns=["global_batch", "lr", "more", "reached", "trials", "best", "inside"])


def format_cluster_shape(nodes: int, workers: int) -> str:
    """Return a cluster shape in words, such as `4 workers on 2 nodes`."""
    on = f" on {nodes} nodes" if nodes > 1 else ""
    return f"{pluralize(workers, 'worker')}{on}"


def format_plans(plans: pd.DataFrame) -> list[str]:
    """Return each plan in a few words: cluster shape, batch size, learning rate, and device if the table has any."""
    devices = plans.device if "device" in plans else [""] * len(plans)
    rows = zip(plans.nodes, plans.workers, plans.batch, plans.lr, strict=True)
    return [
        f"{format_cluster_shape(nodes, workers)} x {batch}"
        + ("" if lr is None or pd.isna(lr) else f", lr {lr:.3g}")
        + (f", on {device}" if device else "")
        for (nodes, workers, batch, lr), device in zip(rows, devices, strict=True)
    ]
