"""Ranges and choices of the options of training that have a value of their own, whatever the others are."""

import math
from collections.abc import Collection, Mapping
from typing import Any, get_args

from equipoise.errors import EquipoiseError
from equipoise.formatting import format_flag
from equipoise.number_bounds import MAX_LEARNING_RATE, MIN_LEARNING_RATE

MINIMUM_BY_OPTION = {
    **dict.fromkeys(("workers", "batch_size", "grad_accumulation", "threads", "image_size", "max_examples"), 1),
    **dict.fromkeys(("eval_every", "patience", "lora_rank", "base_batch"), 1),
    **dict.fromkeys(("seed", "noise_scale_every", "servers", "momentum", "outer_momentum"), 0),
    **dict.fromkeys(("epsilon", "weight_decay", "clip_norm", "warmup", "warmup_examples", "freeze_stages"), 0),
    **dict.fromkeys(("body_lr_scale", "trust", "label_smoothing", "mixup", "average_weights"), 0),
}
"""smallest value of each number that has no largest one"""
OPTIONS_BELOW_ONE = "momentum", "outer_momentum", "beta2", "label_smoothing", "average_weights"
"""shares and decays: past gradients with a momentum of 1 would grow without bound, a decay of 1 would learn nothing"""


MIN_WATTS, MAX_WATTS = 1e-3, 1e6  # of a worker
MAX_OUTER_LR = 10.0  # steps along the average of what workers have learned: 1 takes it as it is, more than 2 overshoot


def require_ranges(options: Any) -> None:
    """Refuse numbers that an option of training cannot have; options that a workload fills in later may be None."""
    for name, minimum in MINIMUM_BY_OPTION.items():
        value = getattr(options, name)
        if value is not None and not minimum <= value < math.inf:
            flag = format_flag(name)
            raise EquipoiseError("option-range", f"{flag} must be a finite number of at least {minimum}, got {value}")
    for name in OPTIONS_BELOW_ONE:
        value = getattr(options, name)
        if value is not None and not 0 <= value < 1:
            raise EquipoiseError("option-range", f"{format_flag(name)} must be at least 0 and below 1, got {value}")
    if options.lr is not None and not MIN_LEARNING_RATE <= options.lr <= MAX_LEARNING_RATE:
        raise EquipoiseError(
            "option-range",
            f"--lr must be a number from {MIN_LEARNING_RATE:g} to {MAX_LEARNING_RATE:g}, got {options.lr}",
        )
    if not 0 < options.outer_lr <= MAX_OUTER_LR:
        raise EquipoiseError(
            "option-range",
            f"--outer-lr must be above 0 and at most {MAX_OUTER_LR:g}, got {options.outer_lr}",
            "1 takes the average of what workers have learned as it is",
        )
    require_power(options.watts)
    if options.target is not None and not math.isfinite(options.target):
        raise EquipoiseError("option-range", f"--target must be a finite number, got {options.target}")
    if options.seed >= 1 << 63:
        raise EquipoiseError("option-range", f"--seed must be below 2**63, got {options.seed}")


def require_power(watts: float | None) -> None:
    """Refuse a power that no worker draws."""
    if watts is not None and not MIN_WATTS <= watts <= MAX_WATTS:
        raise EquipoiseError("option-range", f"--watts must be from {MIN_WATTS:g} to {MAX_WATTS:,.0f}, got {watts:g}")


def require_choices(options: Any, choices_by_option: Mapping[str, Any], defaulted: Collection[str]) -> None:
    """Refuse a name that is none of an option's literals; options that a workload fills in may be None."""
    for name, choices in choices_by_option.items():
        value = getattr(options, name)
        if value not in get_args(choices) and not (value is None and name in defaulted):
            raise EquipoiseError(
                "option-choice", f"{format_flag(name)} must be one of {', '.join(get_args(choices))}, got {value!r}"
            )
