"""Map both curves of a workload on a cluster, recommend a plan, and confirm it.

Times steps over workers and batch (one group of workers for each number), searches
examples to the target over global batch, learning rate and seed, multiplies, and trains
once with the plan. The same command again goes on where it was cut off.
"""

import math
import re
import sys
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import ray.train
import tyro
from ray import tune
from ray.train.torch import TorchTrainer

from equipoise import runs, store, system
from equipoise.search import Search, StepTime
from equipoise.system import System
from equipoise.trial import Optimizer, Precision, Trial
from equipoise.workloads import workload
from jobs import cluster, ladder, tuning
from jobs import plan as planning
from jobs.train import cause, leave_page, train

SETTLED = 0.75  # of the budget is for the search; the rest for the confirming run and what starts take


@dataclass(frozen=True, kw_only=True)
class Asked:
    __doc__ = __doc__

    workload: str
    """digits, fashion-mnist, cifar10, folder, or module:attribute of your own"""
    out: Path
    """folder for tables, records, plan.json and the confirming run"""
    workers: tuple[int, ...] = (1, 2)
    """numbers of workers to choose from"""
    batch: str = "8:512"
    """batches per worker to choose from, LEAST:MOST, in octaves"""
    lr: float = 0.05
    """learning rate to start from at a batch of 32; it is searched at every batch"""
    budget_seconds: float = 120.0
    """time for the trials; those under way are then stopped, and what was found is planned with"""
    model: str | None = None
    data: str = "data"
    size: int | None = None
    optimizer: Optimizer = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    precision: Precision = "fp32"
    augment: bool = True
    threads: int = 1
    target: float | None = None
    examples: int | None = None
    """cap of a trial; 50 passes if not given"""
    evaluate: int | None = None
    """examples between evaluations; a quarter of a pass if not given"""

    def base(self) -> Trial:
        """The trial that all others vary."""
        names = {field.name for field in fields(Trial)} - {"workers", "batch"}
        shared = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return Trial(**shared | {"data": str(Path(self.data).absolute())})

    def batches(self) -> list[int]:
        """Batches per worker, in octaves."""
        found = re.fullmatch(r"([1-9][0-9]*):([1-9][0-9]*)", self.batch)
        if not found or int(found[1]) > int(found[2]):
            raise ValueError(f"batch must be LEAST:MOST such as 8:512, got {self.batch!r}")
        least, most = int(found[1]), int(found[2])
        return [least * 2**k for k in range(int(math.log2(most / least)) + 1)]

    def check(self) -> None:
        """Refuse what makes no sweep."""
        if not self.workers or min(self.workers) < 1:
            raise ValueError(f"workers must be numbers of at least 1, got {self.workers}")
        if not 0 < self.budget_seconds < math.inf:
            raise ValueError(f"budget-seconds must be a finite number above 0, got {self.budget_seconds}")


def main() -> int:
    """Exit status: 0 a plan was found and confirmed, 1 not, 2 asked for what cannot be."""
    asked = tyro.cli(Asked)
    try:
        asked.check()
        return sweep(asked)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ray.train.TrainingFailedError as error:
        print(f"error: a run on the cluster failed: {cause(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 143


def sweep(asked: Asked) -> int:
    """The whole way from a workload to a confirmed plan."""
    base, out = asked.base(), asked.out.absolute()
    cluster.note_place(asked.out)
    most = len(workload(base).train)
    batches = [batch for batch in asked.batches() if batch * min(asked.workers) <= most]
    if not batches:
        raise ValueError(f"no batch of {asked.batch} fits the {most} training examples: choose smaller ones")
    runs.require_writable(out)
    runs.require_ours(out, base)
    cluster.connect()
    gpu = cluster.require_slots(max(asked.workers), base.threads)
    with runs.claimed(out, base):
        timed = system_side(asked, base, out, [(n, b) for n in asked.workers for b in batches if n * b <= most], gpu)
        best = fastest(timed, asked.workers)
        global_batches = sorted({n * b for n in asked.workers for b in batches if n * b <= most})
        statistical_side(asked, base, out, global_batches, best)
        facts = planned(out)
        print(planning.told(facts))
        return confirmed(base, out, facts)


def system_side(asked: Asked, base: Trial, out: Path, settings: list[tuple[int, int]], gpu: bool) -> System:
    """Step times on every number of workers, measured or read from an earlier command's file."""
    tables = []
    for workers in asked.workers:
        path = out / "system" / f"workers-{workers}.json"
        if not path.exists():
            fitting = [batch for n, batch in settings if n == workers]
            print(f"timing {len(fitting)} batches on {workers} worker{'s' * (workers > 1)}", flush=True)
            trainer = timing(replace(base, workers=workers), fitting, out / "system", gpu)
            store.write_json(path, trainer.fit().return_value)
        tables.append(pd.DataFrame(store.read_json(path)))
    rows = pd.concat(tables)
    again = rows[rows["repeat"]].merge(rows[~rows["repeat"]], on=["workers", "batch"])
    apart = (again.seconds_x / again.seconds_y - 1).abs().max()
    print(f"the same batch timed twice differed by {apart:.1%} at most", flush=True)
    table(rows[~rows["repeat"]].drop(columns="repeat"), out / "system.csv")
    return system.fitted(rows[~rows["repeat"]])


def timing(trial: Trial, batches: list[int], place: Path, gpu: bool) -> TorchTrainer:
    """One group of workers that times all batches."""
    return TorchTrainer(
        ladder.worker,
        train_loop_config={"trial": asdict(trial), "batches": batches, "nodes": 1},
        scaling_config=ray.train.ScalingConfig(
            num_workers=trial.workers,
            use_gpu=gpu,
            resources_per_worker={"CPU": trial.threads, **({"GPU": 1} if gpu else {})},
        ),
        run_config=ray.train.RunConfig(
            name=f"ray-{trial.workers}",
            storage_path=str(place),
            logging_config=ray.train.LoggingConfig(log_level="WARNING"),
        ),
    )


def fastest(timed: System, workers: tuple[int, ...]) -> StepTime:
    """Seconds of a step at a global batch, on the workers that are fastest there."""
    low, high = timed.rows.batch.min(), timed.rows.batch.max()

    def step(batch: int) -> float:
        places = [(1, n, batch // n) for n in workers if batch % n == 0 and low <= batch // n <= high]
        points = pd.DataFrame(places or [(1, 1, batch)], columns=["nodes", "workers", "batch"])
        return float(timed.seconds(system.Places.of(points)).min())

    return step


def statistical_side(asked: Asked, base: Trial, out: Path, batches: list[int], step: StepTime) -> None:
    """Trials over global batch, learning rate and seed, as the policy asks for them."""
    folder = out / "trials"
    folder.mkdir(exist_ok=True)
    start = asked.lr * math.sqrt(batches[0] / 32)
    policy = tuning.Policy(Search(batches, start, step), base, folder, time.time() + SETTLED * asked.budget_seconds)
    slots = int(ray.cluster_resources().get("CPU", 1)) // base.threads
    tuner = tune.Tuner(
        tune.with_resources(tuning.Trained, {"CPU": base.threads}),
        tune_config=tune.TuneConfig(search_alg=policy, num_samples=-1, max_concurrent_trials=slots, reuse_actors=True),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(out),
            stop=tuning.Hopeless(policy, step),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=0),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    tuner.fit()
    found = tuning.read(folder)
    print(f"{len(found)} trials, {int(found.reached.sum())} of them reached the target", flush=True)
    table(found, out / "statistical.csv")


def planned(out: Path) -> dict[str, Any]:
    """The plan that both tables make, left in plan.json."""
    tables = planning.Asked(out=out, system=out / "system.csv", statistical=out / "statistical.csv")
    facts = planning.document(tables)
    store.write_json(out / "plan.json", facts)
    return facts


def confirmed(base: Trial, out: Path, facts: dict[str, Any]) -> int:
    """Train with the plan, and say how well it was predicted."""
    chosen = facts["plan"]
    if chosen is None:
        return 1
    trial = replace(base, workers=chosen["workers"], batch=chosen["batch"], lr=chosen["lr"], seed=1000)
    record = runs.finished(out / "confirm", trial) or train(trial, out / "confirm")
    if record is None:
        return 143
    leave_page(record, out / "confirm")
    spent = record.seconds * (record.examples_to_target or math.inf) / record.laps[-1].seen
    foretold = chosen["seconds"]
    inside = foretold["low"] <= spent <= foretold["high"]
    print(
        f"confirming run: {spent:.3g} s to the target, {foretold['value']:.3g} foretold"
        f" ({foretold['low']:.3g} to {foretold['high']:.3g}: {'inside' if inside else 'outside'})"
    )
    store.write_json(out / "confirm.json", {"seconds": spent, "foretold": foretold, "inside": inside})
    return 0 if record.reached else 1


def table(rows: pd.DataFrame, path: Path) -> None:
    """Rows as a file that is whole or not there."""
    with store.whole(path) as temporary:
        rows.to_csv(temporary, index=False)


if __name__ == "__main__":
    sys.exit(main())
