"""Runs that --sharding tensor:K must take the same steps of as one process."""

from equipoise.config import TrainConfig

STEPS = 50
MATRICES = {"weight_decay": 0.01, "decay_on": "matrices", "clip_norm": 0.5}
SGD = {"optimizer": "sgd", "lr": 0.05, **MATRICES}
# keys have a bias whose gradient is rounding alone: AdamW would divide it by its own size
ADAMW = {"optimizer": "adamw", "lr": 0.002, "epsilon": 1e-6, **MATRICES}
DROPOUT, WIDE, GPT = (
    "tests.support.workloads:with_dropout",
    "tests.support.sharded_workloads:wide_mlp",
    "tests.support.sharded_workloads:gpt",
)


def build_config(workload: str, workers: int, steps: int = STEPS, **options: object) -> TrainConfig:
    """Build the options of so many steps with two evaluations."""
    values = {"batch_size": 4, "precision": "fp64", "target": 0.0 if workload == GPT else 2.0, **options}
    global_batch = values["batch_size"] * workers * values.get("grad_accumulation", 1)
    examples = {"max_examples": steps * global_batch, "eval_every": steps * global_batch // 2}
    return TrainConfig(workload=workload, workers=workers, **examples, **values)


def build_configs(workers: int) -> list[TrainConfig]:
    """Build runs of convolutions, dense layers with dropout between them, and a GPT, by each optimizer."""
    return [
        build_config(workload, workers, **{**options, **changes})
        for options in (SGD, ADAMW)
        for workload, changes in (
            ("digits", {"grad_accumulation": 2}),
            ("digits", {"freeze_stages": 1, "clip_norm": 0.0}),
            (DROPOUT, {}),
            (WIDE, {"grad_accumulation": 2}),
            (GPT, {}),
        )
    ]
