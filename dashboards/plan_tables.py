"""What plan.json and the tables beside it hold, as tables to draw: both curves, their product, learning rates."""

import numpy as np
import pandas as pd

from equipoise.type_aliases import JsonObject


def predicted_step_times(plan_json: JsonObject) -> pd.DataFrame:
    """Seconds of an example as predicted, with its interval, over places and batches."""
    rows = [row for row in (plan_json["system"] or {}).get("predictions", []) if row["seconds"] is not None]
    table = pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds", "low", "high", "measured"])
    whole = table.workers * table.batch
    for name in ("seconds", "low", "high"):
        table[name] = table[name].astype(float) / whole
    table.insert(3, "global_batch", whole)
    return table


def measured_step_times(step_times: pd.DataFrame) -> pd.DataFrame:
    """Seconds of an example as measured: rows of system.csv."""
    middle = step_times.groupby(["nodes", "workers", "batch"], as_index=False)["seconds"].median()
    whole = middle.workers * middle.batch
    found: pd.DataFrame = middle.assign(global_batch=whole, seconds=middle.seconds / whole)
    return found


def predicted_examples(plan_json: JsonObject) -> pd.DataFrame:
    """Examples to the target as predicted, with their interval, over the global batch."""
    rows = [row for row in (plan_json["statistical"] or {}).get("predictions", []) if row["examples"] is not None]
    return pd.DataFrame(rows, columns=["global_batch", "examples", "low", "high", "lr"])


def mark_best_lr(trials: pd.DataFrame) -> pd.DataFrame:
    """Trials of statistical.csv, and whether each has the learning rate that is best at its batch."""
    keyed = trials.assign(lr=pd.to_numeric(trials.lr, errors="coerce").fillna(0.0))
    found = keyed.assign(best=False)
    for _, here in keyed.groupby("global_batch"):
        found.loc[here.index, "best"] = here.lr == best_lr(here)
    return found


def best_lr(trials: pd.DataFrame) -> float:
    """The rate with which the trials of one batch needed least; those that fell short count as what they had seen."""
    score = trials.assign(logs=np.log(trials.examples.astype(float)), short=1.0 - trials.reached)
    by = score.groupby("lr")[["short", "logs"]].mean()
    return float(by.sort_values(["short", "logs"]).index[0])


def candidate_plans(plan_json: JsonObject) -> pd.DataFrame:
    """Every plan that could be told: time to the target with its interval, and what it costs."""
    rows = [
        {**one, **{name: one["seconds"][name] for name in ("low", "high")}, "seconds": one["seconds"]["value"]}
        for one in plan_json.get("options") or plan_json["front"]
    ]
    columns = [
        "nodes",
        "workers",
        "batch",
        "global_batch",
        "lr",
        "seconds",
        "low",
        "high",
        "worker_seconds",
        "measured",
    ]
    return pd.DataFrame(rows, columns=[*columns, "binding"])


def group_by_cluster_shape(table: pd.DataFrame) -> dict[tuple[int, int], pd.DataFrame]:
    """By place, each over its batches."""
    ordered = table.sort_values("global_batch")
    places = ordered[["nodes", "workers"]].drop_duplicates().sort_values(["nodes", "workers"]).astype(int)
    return {
        (nodes, workers): ordered[(ordered.nodes == nodes) & (ordered.workers == workers)]
        for nodes, workers in places.itertuples(index=False, name=None)
    }


def lr_ratios(trials: pd.DataFrame) -> pd.DataFrame:
    """By batch and learning rate: examples against the best rate there, and whether rates on both sides were tried."""
    keyed = mark_best_lr(trials)
    rows = []
    for batch, here in keyed[keyed.lr > 0].groupby("global_batch"):
        by = here.assign(logs=np.log(here.examples.astype(float))).groupby("lr")
        means, reached, best = by.logs.mean(), by.reached.mean(), best_lr(here)
        inside = float(means.index.min()) < best < float(means.index.max())
        rows += [
            (batch, lr, float(np.exp(means[lr] - means[best])), reached[lr], len(by.get_group(lr)), lr == best, inside)
            for lr in means.index
        ]
    return pd.DataFrame(rows, columns=["global_batch", "lr", "more", "reached", "trials", "best", "inside"])


def format_cluster_shape(nodes: int, workers: int) -> str:
    """In words."""
    on = f" on {nodes} nodes" if nodes > 1 else ""
    return f"{workers} worker{'s' * (workers != 1)}{on}"


def format_plans(plans: pd.DataFrame) -> list[str]:
    """Each plan in a few words."""
    rows = zip(plans.nodes, plans.workers, plans.batch, plans.lr, strict=True)
    return [
        f"{format_cluster_shape(nodes, workers)} x {batch}" + ("" if lr is None or pd.isna(lr) else f", lr {lr:.3g}")
        for nodes, workers, batch, lr in rows
    ]
