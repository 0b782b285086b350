"""Order of the options in the forms: the few that most people need first, the others folded by topic."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FormLayout:
    """Which options of a command a form shows first, and below which heading it folds the others."""

    title: str
    lead: str
    """what the command is for, in one sentence"""
    first: tuple[str, ...]
    """flags of the options that are always shown, without dashes"""


LAYOUTS = {
    "sweep": FormLayout(
        title="Sweep",
        lead="Measure how fast steps are and how many examples the target takes, and get a plan.",
        first=("out", "workload", "data", "workers", "batch-size", "budget-seconds", "target"),
    ),
    "train": FormLayout(
        title="Train",
        lead="Train one model, with a plan or with settings of your own.",
        first=("out", "workload", "plan", "data", "workers", "batch-size", "lr", "target", "max-examples"),
    ),
    "plan": FormLayout(
        title="Plan",
        lead="Recommend workers, batch size and learning rate from tables that were measured before.",
        first=("out", "system", "statistical", "predict-at", "predict-batch"),
    ),
    "publish": FormLayout(
        title="Publish",
        lead="Make a bundle of a finished run: the folder that services load.",
        first=("out", "run", "name", "plan", "drift", "native"),
    ),
    "check": FormLayout(
        title="Check",
        lead="Tell whether data look like those that a bundle was published with, and what changed if not.",
        first=("out", "bundle", "data"),
    ),
    "adapt": FormLayout(
        title="Adapt",
        lead="Adapt a model whose requests have drifted, with labelled captures.",
        first=("out", "bundle", "service", "verdict", "capture-dir", "epochs"),
    ),
    "profile": FormLayout(
        title="Profile",
        lead="See where the time of a training step goes, and what would help.",
        first=("out", "workload", "data", "workers", "batch-size", "steps", "try"),
    ),
}
"""commands that have a form, in the order in which people use them"""
TOPICS = {
    "Data and model": (
        "workload data label image-size model init-from reuse-head freeze-stages lora-rank body-lr-scale augment"
    ),
    "Workers and batch": "workers batch-size grad-accumulation grow-batch threads seed seeds trials exhaustive",
    "Learning rate and optimizer": (
        "lr scaling-rule base-batch optimizer momentum trust beta2 epsilon weight-decay decay-on clip-norm schedule"
        " warmup warmup-examples"
    ),
    "Regularisation": "label-smoothing mixup average-weights recipes",
    "End of the run": "target lower-is-better max-examples eval-every keep patience budget-seconds",
    "Exchange between workers": (
        "all-reduce sync servers outer-lr outer-momentum compression error-feedback exchanges exchange"
    ),
    "Memory, precision and speed": (
        "sharding pipeline-schedule recompute memory precision compile channels-last watts noise-scale-every"
    ),
    "A training program of your own": "command metric-pattern examples-pattern",
    "Predictions": "predict-at predict-batch predict-exchange predict-rate algorithms",
    "Limits and prices": "deadline budget price",
}
"""flags of the folded options by heading; an option of none of them stands below the last heading"""
OTHER_TOPIC = "Other options"


def find_topic(flag: str) -> str:
    """Return the heading below which an option is folded."""
    return next((topic for topic, flags in TOPICS.items() if flag in flags.split()), OTHER_TOPIC)
