"""Options of training by where their values come from: general defaults, a workload, or a training command."""

from typing import Any

OPTION_DEFAULTS: dict[str, Any] = {
    "optimizer": "sgd",
    "lr": 0.05,
    "weight_decay": 0.0,
    "decay_on": "all",
    "beta2": 0.999,
    "clip_norm": 0.0,
    "schedule": "constant",
    "warmup": 1.0,
}
"""values of options that neither the user nor the workload gives"""
DEFAULTED_OPTIONS = (*OPTION_DEFAULTS, "warmup_examples", "eval_every")
"""options that a workload may have a default for"""
COMMAND_OPTIONS = {"command", "metric_pattern", "examples_pattern"}
"""options of a training command alone"""
SHARED_OPTIONS = {
    "workers",
    "batch_size",
    "lr",
    "seed",
    "threads",
    "target",
    "lower_is_better",
    "max_examples",
    "patience",
}
"""options that a training command has as well as a workload"""
PLACEMENT_OPTIONS = "sharding", "pipeline_schedule", "recompute"
"""options that say what each worker holds and when, and leave the steps as they are: a resumed run may change them"""
