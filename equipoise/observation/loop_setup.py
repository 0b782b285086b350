"""What is known of a loop before it runs: its options, its optimizer, and whether it can be observed."""

from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_flag
from equipoise.number_bounds import MAX_LEARNING_RATE, MIN_LEARNING_RATE

OPTIMIZER_NAMES = {"SGD": "sgd", "AdamW": "adamw", "Adam": "adamw", "Adafactor": "adafactor"}
"""names in `TrainConfig` of the classes of torch.optim that it knows; Adam differs by its weight decay alone"""

_observed_models: WeakSet[nn.Module] = WeakSet()


def unwrap_model(model: nn.Module) -> nn.Module:
    """Return the module inside of DistributedDataParallel and torch.compile, or the module itself."""
    while isinstance(inner := find_inner_module(model), nn.Module):
        model = inner
    return model


def find_inner_module(model: nn.Module) -> nn.Module | None:
    """Return the module that DistributedDataParallel or torch.compile has wrapped; None for any other."""
    return model.module if isinstance(model, DistributedDataParallel) else getattr(model, "_orig_mod", None)


def unwrap_optimizer(optimizer: Any) -> Optimizer:
    """Return the optimizer of torch inside of the wrappers of Accelerate and Lightning."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    if not isinstance(optimizer, Optimizer):
        raise EquipoiseError(
            "loop-unobservable",
            f"cannot observe the loop: the optimizer is a {type(optimizer).__name__}",
            "give an optimizer of torch.optim",
        )
    return optimizer


def list_trainable_parameters(model: nn.Module, optimizer: Optimizer) -> list[nn.Parameter]:
    """Return the parameters that the optimizer trains; refuse a model of which it trains none."""
    if not isinstance(model, nn.Module):
        raise EquipoiseError(
            "loop-unobservable",
            f"cannot observe a {type(model).__name__}: it is not a torch.nn.Module",
            "give the model",
        )
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise EquipoiseError(
            "loop-unobservable",
            f"cannot observe the {type(unwrap_model(model)).__name__}: none of its parameters requires a gradient",
            "observe the model that the loop trains",
        )
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if not trained & {id(parameter) for parameter in parameters}:
        raise EquipoiseError(
            "loop-unobservable",
            "cannot observe the loop: the optimizer holds none of the model's parameters",
            "give the model and the optimizer that trains it",
        )
    return parameters


def claim_model(model: nn.Module) -> None:
    """Mark a model as observed; refuse one that another observer watches."""
    if (inner := unwrap_model(model)) in _observed_models:
        raise EquipoiseError(
            "loop-unobservable",
            f"cannot observe the {type(inner).__name__} twice: an observer watches it already",
            "close that one first",
        )
    _observed_models.add(inner)


def release_model(model: nn.Module) -> None:
    """Let another observer watch a model."""
    _observed_models.discard(unwrap_model(model))


def build_observed_config(
    model: nn.Module,
    optimizer: Optimizer,
    name: str | None,
    **options: Any,
) -> TrainConfig:
    """Build the options of a loop from its model and optimizer; what is not known of it keeps its default."""
    group = optimizer.param_groups[0]
    lr = float(group.get("initial_lr", group["lr"]))  # a schedule with a warm-up may have set lr to 0
    dtype = next(parameter.dtype for parameter in model.parameters() if parameter.requires_grad)
    try:
        return TrainConfig(
            workload=name or type(unwrap_model(model)).__name__,
            lr=min(max(lr, MIN_LEARNING_RATE), MAX_LEARNING_RATE),
            optimizer=OPTIMIZER_NAMES.get(type(optimizer).__name__, TrainConfig.optimizer),
            momentum=float(group.get("momentum") or 0.0),
            weight_decay=float(group.get("weight_decay") or 0.0),
            precision="fp64" if dtype == torch.float64 else "fp32",
            threads=torch.get_num_threads(),
            **options,
        )
    except EquipoiseError as error:
        raise name_arguments(error, options) from None


def name_arguments(error: EquipoiseError, names: Iterable[str]) -> EquipoiseError:
    """Return the error with the names of arguments in place of the options of the command line."""
    problem = error.problem
    for name in names:
        problem = problem.replace(format_flag(name), name)
    return EquipoiseError(error.code, problem, error.remedy)
