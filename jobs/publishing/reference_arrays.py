"""Arrays of reference.npz: what a model says of images that it was not trained on."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from equipoise.bundle.engines import Engine
from equipoise.drift.features.statistic_schema import EXAMPLE_NAMES, ProfileKind
from equipoise.drift.profiling.build_profile import LabelledOutputs, build_profile_arrays
from equipoise.drift.reference.profile import ARRAY_PREFIX, SCHEMA_PREFIX, parse_false_alarm_check
from equipoise.drift.reference.reference_size import describe_false_alarm_rate, describe_small_reference
from equipoise.spacing import evenly_spaced_indices
from equipoise.workloads import ImageWorkload, Split
from jobs.publishing.known_conditions import LearnedCondition, build_known_conditions

MAX_PROFILE_IMAGES = 20_000  # images of the reference that the drift profile is built from
MAX_REFERENCE_IMAGES = 200  # images of the reference kept in the bundle, to be shown on pages


def sample_images(split: Split, max_count: int) -> Tensor:
    """Return up to `max_count` images, evenly spaced over a split."""
    return torch.stack([split.inputs[int(index)] for index in evenly_spaced_indices(len(split), max_count)])


def predict_split(engine: Engine, split: Split) -> tuple[Any, Any, Any]:
    """Return an engine's logits and features of a split, and the split's labels."""
    parts = [
        engine(torch.stack([split.inputs[int(index)] for index in batch]))
        for batch in torch.arange(len(split)).split(64)
    ]
    logits, features = (torch.cat([part[index] for part in parts]).numpy() for index in (0, 1))
    return logits, features, split.targets.numpy()


def build_reference_arrays(workload: ImageWorkload, outputs: tuple[Any, Any, Any]) -> dict[str, Any]:
    """Build the arrays of reference.npz: the model's outputs on the reference split, which it was not trained on."""
    logits, features, labels = outputs
    return {
        "logits": logits.astype(np.float32),
        "features": features.astype(np.float32),
        "labels": labels,
        "pictures": sample_images(workload.reference, MAX_REFERENCE_IMAGES).numpy(),
        "places": evenly_spaced_indices(len(workload.reference), MAX_REFERENCE_IMAGES),
    }


def find_false_alarm_split(workload: ImageWorkload) -> Split:
    """Return the split on which false alarms are counted, which is like the reference."""
    return workload.false_alarm_split or workload.validation


def build_drift_arrays(
    predict: Engine,
    workload: ImageWorkload,
    outputs: Mapping[str, tuple[Any, Any, Any]],
    temperature: float,
    learned: Sequence[LearnedCondition],
) -> dict[str, Any]:
    """Build the arrays of the drift profile from outputs on the splits "reference" and "false alarms"."""
    reference = sample_profile_outputs(workload.reference, *outputs["reference"])
    held_out = sample_profile_outputs(find_false_alarm_split(workload), *outputs["false alarms"])
    known = build_known_conditions(predict, learned, workload.reference)
    return build_profile_arrays(predict, reference, temperature, held_out, known)


def sample_profile_outputs(split: Split, logits: Any, features: Any, labels: Any) -> LabelledOutputs:
    """Return up to MAX_PROFILE_IMAGES images of a split with the model's outputs for them."""
    indices = evenly_spaced_indices(len(split), MAX_PROFILE_IMAGES)
    images = torch.stack([split.inputs[int(index)] for index in indices])
    return LabelledOutputs(images, logits[indices], features[indices], labels[indices])


def find_reference_warning(arrays: dict[str, Any]) -> str | None:
    """Return a sentence on a reference that supports no verdict, or too few requests per false alarm; None without."""
    if (reason := arrays.get(f"{ARRAY_PREFIX}why not")) is not None:
        return f"the service cannot detect drift: {reason}"
    check = parse_false_alarm_check(arrays.get(f"{ARRAY_PREFIX}verified"))
    return describe_small_reference(count_reference_images(arrays), check, examples=find_example_name(arrays))


def find_false_alarm_rate(arrays: dict[str, Any]) -> str | None:
    """Return a sentence on the false alarms counted on held-out examples; None if none were counted."""
    check = parse_false_alarm_check(arrays.get(f"{ARRAY_PREFIX}verified"))
    if check is None:
        return None
    return describe_false_alarm_rate(count_reference_images(arrays), check, examples=find_example_name(arrays))


def find_example_name(arrays: dict[str, Any]) -> str:
    """Return what the examples of a drift profile are called; images where it does not say."""
    kind = str(arrays.get(f"{ARRAY_PREFIX}{SCHEMA_PREFIX}kind", "image"))
    return EXAMPLE_NAMES[cast("ProfileKind", kind)]


def count_reference_images(arrays: dict[str, Any]) -> int:
    """Return the number of examples that the drift profile was built from."""
    return int(arrays[f"{ARRAY_PREFIX}usual.counts"].sum())
