"""What a plan was measured with: its predictions hold for this data, model and these options on this device only."""

from dataclasses import dataclass, replace

from equipoise.formatting import format_flag
from equipoise.hardware_facts import HardwareFacts
from equipoise.number_bounds import Count, FiniteNumber
from equipoise.runs.target import UNNAMED_METRIC, Target

OptionValue = str | bool | FiniteNumber | None

SETUP_OPTIONS = (
    "all_reduce",
    "reuse_head",
    "freeze_stages",
    "lora_rank",
    "body_lr_scale",
    "optimizer",
    "momentum",
    "beta2",
    "epsilon",
    "weight_decay",
    "decay_on",
    "clip_norm",
    "schedule",
    "warmup",
    "warmup_examples",
    "precision",
    "compile",
    "channels_last",
    "augment",
    "threads",
)
"""options of training that change the time of a step or the examples to the target, and that a plan does not set"""

CHANGED_SETUP_OPTIONS = (
    *("outer_lr", "outer_momentum", "error_feedback"),
    *("trust", "label_smoothing", "mixup", "average_weights", "scaling_rule", "grow_batch"),
)
"""options of some ways of exchange and recipes, which a setup has where they differ from their defaults"""

OLD_FIELD_NAMES = {"training_images": "training_examples", "image_size": "input_shape"}
MOST_EXAMPLES_FLAG = "--max-examples"  # compared for schedules that depend on it: not for a constant learning rate


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """Data, model, options and device of the measurements that a plan rests on."""

    workload: str | None = None
    """name of the workload"""
    command: str | None = None
    """training program that was run instead of a workload; what it trains is not known"""
    data: str | None = None
    """digest of the training and validation examples and their targets"""
    training_examples: Count | None = None
    """number of training examples"""
    input_shape: str | None = None
    """shape of one input, such as channels x height x width; of several tensors one after another"""
    unit: str = "examples"
    """unit in which people count examples of this kind, such as tokens"""
    units_per_example: Count = 1
    """units in an example"""
    model: str | None = None
    """class of the model and number of its parameters"""
    initial_weights: str | None = None
    """digest of the pretrained weights; None for random ones"""
    target: FiniteNumber | None
    """validation metric at which training stops"""
    lower_is_better: bool = False
    """whether a lower metric is a better one"""
    metric_name: str = UNNAMED_METRIC
    """name of the metric for people, such as mAP"""
    options: dict[str, OptionValue]
    """options that change the time of a step or the examples to the target, those of `SETUP_OPTIONS`, and those of
    `CHANGED_SETUP_OPTIONS` that differ from their defaults"""
    recipe: str | None = None
    """recipe whose options these are, of a sweep that compared several; None where it compared none"""
    machine: HardwareFacts
    """hardware and software of the workers"""

    @property
    def goal(self) -> Target:
        """Target with its direction."""
        return Target(value=self.target, lower_is_better=self.lower_is_better, metric_name=self.metric_name)

    def differences(self, other: "TrainingSetup") -> list[str]:
        """Name what a run with another setup must not have; target, device and versions are compared elsewhere."""
        values, others = self._compared_values(), other._compared_values()
        changed = [
            f"{name} {format_value(value, others.get(name))} (this run: {format_value(others.get(name), value)})"
            for name, value in values.items()
            if not is_same_value(value, others.get(name))
        ]
        return changed + [
            f"{name} that it does not say (this run: {format_value(value)})"
            for name, value in others.items()
            if name not in values and not (name == MOST_EXAMPLES_FLAG and self.options.get("schedule") == "constant")
        ]

    def _compared_values(self) -> dict[str, OptionValue]:
        names = {
            "workload": "workload",
            "command": "command",
            "training_examples": "number of training examples",
            "data": "data with digest",
            "input_shape": "input shape",
            "model": "model",
            "initial_weights": "initial weights with digest",
        }
        facts = {label: getattr(self, name) for name, label in names.items()}
        return facts | {format_flag(name): value for name, value in self.options.items()}


def rename_old_setup_keys(contents: object) -> object:
    """Return the JSON of a setup with the names of today for fields that had others up to version 0.1."""
    if not isinstance(contents, dict):
        return contents
    return {OLD_FIELD_NAMES.get(name, name): value for name, value in contents.items()}


def describe_target_mismatch(planned: TrainingSetup, used: TrainingSetup) -> str | None:
    """Return a sentence if a plan was measured for another target than a run has; None if for the same."""
    if replace(planned.goal, metric_name=used.metric_name) == used.goal:  # older plans do not name it
        return None
    return (
        f"the plan was measured for a target of {planned.goal.describe()} and this run has {used.goal.describe()}: the"
        " predicted examples and seconds do not hold"
    )


def describe_device_mismatch(planned: HardwareFacts, used: HardwareFacts) -> str | None:
    """Return a sentence if a plan was measured on another kind of device than the one used; None if on the same."""
    devices = [facts.gpu or facts.processor for facts in (planned, used)]
    if None in devices or devices[0] == devices[1]:
        return None
    return (
        f"the plan was measured on {devices[0]} and this run uses {devices[1]}: its examples to the target hold, its"
        " seconds do not; run the same sweep with another --out here, or time its batches again"
    )


def describe_version_mismatch(planned: HardwareFacts, used: HardwareFacts) -> str | None:
    """Return a sentence if a plan was measured with other versions of PyTorch or Equipoise; None if with the same."""
    versions = [
        (label, getattr(planned, name), getattr(used, name))
        for name, label in (("torch", "PyTorch"), ("equipoise", "Equipoise"))
    ]
    differences = [
        f"{label} {planned_version} (this run: {used_version})"
        for label, planned_version, used_version in versions
        if None not in (planned_version, used_version) and planned_version != used_version
    ]
    if not differences:
        return None
    return f"the plan was measured with {' and '.join(differences)}: its seconds may not hold; time its batches again"


def is_same_value(value: OptionValue, other: OptionValue) -> bool:
    """Return whether two values of an option are equal and of one kind: true is not 1, and a text is no number."""
    return isinstance(value, bool) == isinstance(other, bool) and value == other


def format_value(value: OptionValue, other: OptionValue = None) -> str:
    """Format the value of an option for a message; a text that stands beside a value of another kind gets quotes."""
    if isinstance(value, str) and not isinstance(other, str | None):
        return repr(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
