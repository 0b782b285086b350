"""Workload of digits with a model of timm, as a user writes it."""

from dataclasses import replace
from functools import partial

import timm

from equipoise.config import TrainConfig
from equipoise.workloads import ImageWorkload, load_workload


def digits(config: TrainConfig) -> ImageWorkload:
    """Learn the digits with a small MobileNet."""
    workload = load_workload(replace(config, workload="digits", model=None))
    model = partial(timm.create_model, "mobilenetv3_small_050", num_classes=10, in_chans=1)
    return replace(workload, name="digits-timm", model=model)
