"""Describe what a training run is made of, so that a plan can tell whether it was measured with the same."""

import hashlib
from collections.abc import Mapping
from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.training_setup import CHANGED_SETUP_OPTIONS, SETUP_OPTIONS, OptionValue, TrainingSetup
from equipoise.spacing import evenly_spaced_indices
from equipoise.training.finetune import effective_body_lr_scale, load_pretrained
from equipoise.workloads import Split, Workload
from equipoise.workloads.batch import Batch, list_tensors

DIGEST_LENGTH = 12  # hexadecimal digits
DIGEST_EXAMPLES = 64  # read from each split, evenly spaced: decoding all of a large folder takes minutes


def describe_training_setup(config: TrainConfig, workload: Workload, machine: HardwareFacts) -> TrainingSetup:
    """Describe the setup of a run with a config on a machine."""
    pretrained = load_pretrained(config, workload)
    initial_weights = digest_tensors(pretrained.tensors) if pretrained else None
    return describe_trained_setup(config, workload, machine, initial_weights)


def describe_trained_setup(
    config: TrainConfig, workload: Workload, machine: HardwareFacts, initial_weights: str | None
) -> TrainingSetup:
    """Describe the setup of a run whose initial weights have this digest; they may no longer be there."""
    model = workload.model()
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    return TrainingSetup(
        workload=config.workload,
        data=digest_data(workload),
        training_examples=len(workload.train),
        input_shape=describe_input(workload.train),
        unit=workload.unit.name,
        units_per_example=workload.unit.per_example,
        model=f"{type(model).__name__} of {num_parameters:,} parameters",
        initial_weights=initial_weights,
        target=workload.run_target(config).value,
        lower_is_better=workload.run_target(config).lower_is_better,
        metric_name=workload.metric_name,
        options=collect_setup_options(config, workload),
        machine=machine,
    )


def describe_command_setup(config: TrainConfig, machine: HardwareFacts) -> TrainingSetup:
    """Describe the setup of a run of a user's command: what it trains is its own affair."""
    names = ("threads", "metric_pattern", "examples_pattern")
    return TrainingSetup(
        command=config.command,
        target=config.target,
        lower_is_better=config.lower_is_better,
        options={name: getattr(config, name) for name in names},
        machine=machine,
    )


def collect_setup_options(config: TrainConfig, workload: Workload) -> dict[str, OptionValue]:
    """Return the options that a plan's predictions depend on, with their defaults filled in."""
    config = config.with_defaults(workload.defaults)
    options = {name: getattr(config, name) for name in SETUP_OPTIONS}
    options["body_lr_scale"] = effective_body_lr_scale(config)
    defaults = {field.name: field.default for field in fields(TrainConfig)}
    used = ((name, getattr(config, name)) for name in CHANGED_SETUP_OPTIONS)
    options |= {name: value for name, value in used if value != defaults[name]}
    if config.schedule != "constant":  # then the learning rate at each step depends on it
        options["max_examples"] = workload.max_examples(config)
    return options


def digest_data(workload: Workload) -> str:
    """Return a digest of the classes, all targets and some examples of the training and validation splits."""
    digest = hashlib.sha256("\0".join(workload.classes).encode())
    for split in (workload.train, workload.validation):
        if split.targets is not None:
            update_digest(digest, split.targets)
        for example in sample_examples(split):
            update_digest(digest, example)
    return digest.hexdigest()[:DIGEST_LENGTH]


def sample_examples(split: Split) -> list[tuple[Batch, Batch]]:
    """Return evenly spaced examples of a split, the first and the last among them, each as a batch of one."""
    return [split.read_examples([index]) for index in evenly_spaced_indices(len(split), DIGEST_EXAMPLES).tolist()]


def describe_input(split: Split) -> str:
    """Describe the shape of the first input, such as 3 x 32 x 32; of several tensors one after another."""
    tensors = list_tensors(split.read_examples([0])[0])
    return ", ".join(" x ".join(map(str, tensor.shape[1:])) or "1" for tensor in tensors)


def update_digest(digest: "hashlib._Hash", batch: Batch) -> None:
    """Add the tensors of a batch to a digest, and the text of what is no tensor."""
    tensors = list_tensors(batch)
    if not tensors:
        digest.update(repr(batch).encode())
    for tensor in tensors:
        digest.update(np.ascontiguousarray(tensor.numpy()).tobytes())


def digest_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of tensors and their names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:DIGEST_LENGTH]
