"""Describe what a training run is made of, so that a plan can tell whether it was measured with the same."""

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.training_setup import SETUP_OPTIONS, OptionValue, TrainingSetup
from equipoise.spacing import evenly_spaced_indices
from equipoise.training.finetune import effective_body_lr_scale, load_pretrained
from equipoise.workloads import Split, Workload

DIGEST_LENGTH = 12  # hexadecimal digits
DIGEST_IMAGES = 64  # read from each split, evenly spaced: decoding all of a large folder takes minutes


def describe_training_setup(config: TrainConfig, workload: Workload, machine: HardwareFacts) -> TrainingSetup:
    """Describe the setup of a run with a config on a machine."""
    pretrained = load_pretrained(config)
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
        training_images=len(workload.train),
        image_size=" x ".join(map(str, workload.train.pictures[0].shape)),
        model=f"{type(model).__name__} of {num_parameters:,} parameters",
        initial_weights=initial_weights,
        target=workload.run_target(config).value,
        lower_is_better=workload.run_target(config).lower_is_better,
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
    options = {name: getattr(config, name) for name in SETUP_OPTIONS}
    options["body_lr_scale"] = effective_body_lr_scale(config)
    if config.schedule != "constant":  # then the learning rate at each step depends on it
        options["max_examples"] = workload.max_examples(config)
    return options


def digest_data(workload: Workload) -> str:
    """Return a digest of the classes, all labels and some images of the training and validation splits."""
    digest = hashlib.sha256("\0".join(workload.classes).encode())
    for split in (workload.train, workload.validation):
        digest.update(split.labels.numpy().tobytes())
        for picture in sample_pictures(split):
            digest.update(np.ascontiguousarray(picture.numpy()).tobytes())
    return digest.hexdigest()[:DIGEST_LENGTH]


def sample_pictures(split: Split) -> list[Tensor]:
    """Return evenly spaced images of a split, the first and the last among them."""
    return [split.pictures[index] for index in evenly_spaced_indices(len(split), DIGEST_IMAGES).tolist()]


def digest_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of tensors and their names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:DIGEST_LENGTH]
