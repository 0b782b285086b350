"""Trials of the recipe table: examples to the target and generalisation gap of recipes at several global batches.

    python -m benchmarks.recipe_trials --out recipe_trials.jsonl --seconds 3600

Each cell is a workload, a global batch and a recipe. Its learning rate is searched with a few runs of one seed,
an octave apart, the same number for every recipe; then the best rate runs with seeds of its own, the same for all
recipes, so that two recipes are compared in pairs. Runs are written as they end, and those that are there already are
not repeated. `python -m benchmarks.recipe_table` prints the table.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.recipe_cells import RATE_EXPONENT, RECIPES, WORKLOADS, Row, TableCell
from equipoise.runs.record import examples_at_target
from equipoise.runs.target import Target
from equipoise.training.loop import Training
from equipoise.workloads import Split, Workload, load_workload

SEARCH_SEED = 0
SEEDS = (1, 2, 3)
HOPELESS_FACTOR = 1.6  # a run of the search ends at this multiple of the best one's examples
GAP_EXAMPLES = 500  # training examples that the gap is measured on, at most
LENGTH_SHARES = (0.1, 0.25, 0.5, 1.0)
"""lengths of one cycle, as shares of what the plain recipe needs in the median"""


class TrialTable:
    """Rows of finished runs, in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def find(self, **values: Any) -> Row | None:
        """Return the first row that has these values."""
        return next(iter(self.select(**values)), None)

    def select(self, **values: Any) -> list[Row]:
        """Return the rows that have these values."""
        return [row for row in self.rows if all(row.get(name) == value for name, value in values.items())]

    def add(self, row: Row) -> None:
        """Add a row, on disk first."""
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.rows.append(row)


def main() -> None:
    """Run what is missing until the time is up."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipe_trials", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("recipe_trials.jsonl"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long; the next call goes on")
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    trials = TrialRunner(TrialTable(arguments.out), time.monotonic() + arguments.seconds)
    try:
        for recipe in RECIPES:
            for name in arguments.workloads:
                for cell in list_cells(name, recipe, trials.table):
                    trials.run_cell(cell)
    except TimeoutError:
        print("the time is up; the same command goes on", flush=True)


def list_cells(workload: str, recipe: str, table: TrialTable) -> Iterator[TableCell]:
    """Yield the cells of a recipe: all batches for constant ones, few for those that set the batch or the length."""
    setting = WORKLOADS[workload]
    if setting.is_text and recipe in ("mixup", "adamw"):
        return  # texts cannot be blended, and are plain with AdamW
    if recipe == "one-cycle":
        for batch in setting.batches[1:2]:
            for share in LENGTH_SHARES:
                if needed := plain_examples(table, workload, batch):
                    yield TableCell(
                        workload=workload, batch=batch, recipe=recipe, length=math.ceil(share * needed / batch) * batch
                    )
        return
    batches = {"plain": setting.batches, "grow auto": setting.batches[:2]}.get(recipe, setting.batches[1:])
    for batch in batches:
        if "linear" not in recipe or batch != setting.batches[1]:
            yield TableCell(workload=workload, batch=batch, recipe=recipe)


def plain_examples(table: TrialTable, workload: str, batch: int) -> float | None:
    """Return the median of the examples that the plain recipe needs, None if not all seeds are there and reached."""
    rows = table.select(workload=workload, batch=batch, recipe="plain", kind="final")
    reached = sorted(row["examples"] for row in rows if row["examples"])
    return reached[len(reached) // 2] if len(reached) == len(SEEDS) else None


class TrialRunner:
    """Runs of the table, until a time."""

    def __init__(self, table: TrialTable, end: float) -> None:
        self.table, self.end = table, end
        self.workloads: dict[str, Workload] = {}

    def run_cell(self, cell: TableCell) -> None:
        """Search the rate of a cell, and run it with all seeds."""
        lr = self.find_linear_rate(cell) if "linear" in cell.recipe else self.search_rate(cell)
        for seed in SEEDS:
            if lr and not self.table.find(**cell.key, seed=seed, kind="final"):
                budget = 0 if cell.length or cell.recipe == "grow auto" else cell.setting.budget
                self.run(cell, lr, seed, "final", cell.cap, budget)

    def find_linear_rate(self, cell: TableCell) -> float | None:
        """Return the best rate of the critical batch, times the ratio of the batches."""
        base = cell.setting.batches[1]
        row = self.table.find(workload=cell.workload, batch=base, recipe="plain", kind="final")
        return row["lr"] * cell.batch / base if row else None

    def search_rate(self, cell: TableCell) -> float:
        """Return the best rate of a few, an octave apart: from the first one on to the side that is better."""
        ranks: dict[float, tuple[float, float]] = {}
        for _ in range(cell.setting.tries):
            lr = next_rate(ranks, self.first_rate(cell))
            row = self.table.find(**cell.key, lr=lr, kind="search")
            if row is None:
                best = min(ranks.values(), default=(math.inf, 0))[0]
                row = self.run(cell, lr, SEARCH_SEED, "search", min(cell.cap, HOPELESS_FACTOR * best), 0)
            ranks[lr] = rank_trial(row, self.target(cell))
        return min(ranks, key=lambda lr: ranks[lr])

    def first_rate(self, cell: TableCell) -> float:
        """Return the rate to begin with: a little more than the best one of the next smaller batch, if it is known."""
        smaller = [row for row in self.table.rows if row["kind"] == "final" and row["workload"] == cell.workload]
        smaller = [row for row in smaller if row["recipe"] == cell.recipe and row["batch"] < cell.batch]
        if not smaller:
            return cell.first_rate
        row = max(smaller, key=lambda row: (row["batch"], row["length"] or 0))
        return float(f"{row['lr'] * (cell.batch / row['batch']) ** RATE_EXPONENT:.6g}")

    def load(self, cell: TableCell) -> Workload:
        """Return the workload of a cell, with at most so many validation examples."""
        if cell.workload not in self.workloads:
            workload = load_workload(cell.build_config(0.01, 0))
            validation = workload.validation.take_first(cell.setting.validation)
            self.workloads[cell.workload] = replace(workload, validation=validation)
        return self.workloads[cell.workload]

    def target(self, cell: TableCell) -> Target:
        """Return the target of a cell's runs."""
        return self.load(cell).run_target(cell.build_config(0.01, 0))

    def run(self, cell: TableCell, lr: float, seed: int, kind: str, limit: float, budget: int) -> Row:
        """Train to the target, at most to `limit` examples, and then on to the budget; add the row and return it."""
        start = time.process_time()
        training = Training(cell.build_config(lr, seed), self.load(cell))
        target = self.target(cell)
        training.target = replace(target, value=None)  # the run goes on, and its laps tell where it would have ended
        row: Row = {**cell.key, "lr": lr, "seed": seed, "kind": kind, "examples": None}
        for lap in training.laps():
            if time.monotonic() > self.end:
                raise TimeoutError
            if row["examples"] is None and lap.metric is not None and target.is_reached(lap.metric):
                row["examples"] = examples_at_target(training.finished_laps, target)
                row |= {"steps": training.step, "batches": count_steps(training)}
                if kind == "final":
                    row["at_target"] = measure_gap(training)
            if lap.seen >= (budget if row["examples"] else limit):
                break
        row["seen"] = training.examples_seen
        metrics = [lap.metric for lap in training.finished_laps if lap.metric is not None]
        row["best_metric"] = target.best(metrics) if metrics else None
        if kind == "final" and training.status != "failed":
            row["at_end"] = measure_gap(training)
        row |= {"status": training.status, "cpu_seconds": round(time.process_time() - start, 2)}
        self.table.add(row)
        return row


def next_rate(ranks: dict[float, tuple[float, float]], first: float) -> float:
    """Return the next rate to try: beside the best of those that reached the target, else further and further away."""
    if not ranks:
        return float(f"{first:.6g}")
    best = min(ranks, key=lambda lr: ranks[lr])
    if math.isfinite(ranks[best][0]):
        rates = [best / 2, best * 2, best * math.sqrt(0.5), best * math.sqrt(2)]
    else:
        rates = [first / 2, first / 4, first * 2, first * 4]
    rates = [float(f"{lr:.6g}") for lr in rates]
    return next(lr for lr in rates if not any(math.isclose(lr, other, rel_tol=0.01) for other in ranks))


def rank_trial(row: Row, target: Target) -> tuple[float, float]:
    """Return a key by which the run comes first that needs the fewest examples, and then the one that came closest."""
    metric = row["best_metric"]
    shortfall = math.inf if metric is None or target.value is None else abs(target.value - metric)
    return (row["examples"] or math.inf, shortfall)


def count_steps(training: Training) -> dict[str, int]:
    """Return how many steps a run took with each global batch."""
    steps: dict[str, int] = {}
    for lap in training.finished_laps:
        batch = str(lap.global_batch)
        steps[batch] = steps.get(batch, 0) + lap.steps
    return steps


def measure_gap(training: Training) -> dict[str, float]:
    """Return the metric on training examples and on the test split."""
    train: Split = training.workload.train.take_first(GAP_EXAMPLES)
    test = training.workload.test.take_first(2 * GAP_EXAMPLES)
    return {"train": training.evaluate(train), "test": training.evaluate(test)}


if __name__ == "__main__":
    main()
