"""Folders of sweeps for tests of pages: their tables have the shape of real ones, the values follow formulas."""

import json
from dataclasses import replace
from pathlib import Path

from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.build_document import build_plan_document, read_request
from equipoise.planning.document import PlanDocument
from equipoise.planning.plan import ClusterShape
from equipoise.planning.training_setup import TrainingSetup
from equipoise.storage.atomic import write_json
from jobs.ray_tune.confirmation import write_plan

SETUP = TrainingSetup(
    workload="made-up",
    data="0123456789ab",
    training_examples=1000,
    input_shape="3 x 32 x 32",
    model="LeNet of 61,706 parameters",
    initial_weights=None,
    target=0.9,
    options={"optimizer": "sgd", "momentum": 0.9},
    machine=HardwareFacts(processor="AMD EPYC", device="cpu"),
)
WORKER_COUNTS, BATCH_SIZES = (1, 2, 4), (16, 32, 64, 128)


def write_system_csv(path: Path) -> Path:
    """Write step times whose exchange approaches 20 ms on many workers."""
    rows = [
        (1, n, b, 0.01 + 0.001 * b + 0.02 * (n - 1) / n, 0.001, 0.02 * (n - 1) / n)
        for n in WORKER_COUNTS
        for b in BATCH_SIZES
    ]
    header = "nodes,workers,batch,seconds,data_seconds,exchange_seconds\n"
    path.write_text(header + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def write_statistical_csv(path: Path, seeds: int = 3) -> Path:
    """Write runs with a critical batch of 300 and three learning rates per batch, of which the middle one is best."""
    runs = [
        (b, rate * (b / 64) ** 0.5, seed, round(20_000 * (1 + b / 300) * factor * (1 + 0.02 * (seed % 5)), 1), 1)
        for b in (64, 128, 256, 512)
        for rate, factor in ((0.05, 1.3), (0.1, 1.0), (0.2, 1.4))
        for seed in range(seeds)
    ]
    path.write_text("global_batch,lr,seed,examples,reached\n" + "".join(",".join(map(str, run)) + "\n" for run in runs))
    return path


def write_sweep_folder(out: Path, seeds: int = 3) -> Path:
    """Write the folder of a sweep without its pages, and return it."""
    out.mkdir(parents=True)
    write_system_csv(out / "system.csv")
    write_statistical_csv(out / "statistical.csv", seeds)
    (out / "trial.json").write_text(json.dumps({"workload": "made-up"}))
    write_plan(out, SETUP)
    return out


def write_plan_folder(out: Path, cluster_shapes: tuple[ClusterShape, ...] = (), **measured: Path) -> PlanDocument:
    """Write the plan of one or two tables without a sweep, and return its contents."""
    document = build_plan_document(replace(read_request(**measured), cluster_shapes=cluster_shapes))
    write_json(out / "plan.json", document.to_json())
    return document
