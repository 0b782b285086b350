"""Starts a model from what another one has learned: which weights it takes over, which stay, which learn slowly."""

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.storage.atomic import open_local_copy
from equipoise.storage.object_store import parse_location

TORCHVISION_WEIGHTS = "torchvision"
BUNDLE_WEIGHTS_FILE = "weights.safetensors"
WEIGHTS_FILES = (BUNDLE_WEIGHTS_FILE, "model.safetensors")  # of a bundle, of a run
DEFAULT_BODY_LR = 0.1  # share of the learning rate for what has learned before
REUSED_ROW_NORM = (
    0.5  # length of rows taken over, in lengths of drawn ones: the best of 0.3, 0.5 and 1 on shared classes
)
NORM_LAYERS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)


@dataclass(frozen=True)
class PretrainedWeights:
    """The weights of a model, and the classes that the rows of its head stand for."""

    origin: str
    tensors: dict[str, Tensor]
    classes: list[str]


def load_pretrained(config: TrainConfig) -> PretrainedWeights | None:
    """What `trial` starts from; None if from nothing."""
    if config.init_from is None:
        return None
    return (
        load_torchvision_weights(config)
        if config.init_from == TORCHVISION_WEIGHTS
        else load_from_run_or_bundle(parse_location(config.init_from))
    )


def load_from_run_or_bundle(folder: Path) -> PretrainedWeights:
    """The model of a bundle or of a run."""
    path = next((folder / name for name in WEIGHTS_FILES if (folder / name).is_file()), None)
    if path is None:
        raise ValueError(
            f"--init-from {folder} holds no model: give a bundle or a finished run, or {TORCHVISION_WEIGHTS}"
        )
    try:
        with open_local_copy(path) as file, safe_open(file, "pt") as held:
            tensors = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118  # not a mapping
            classes = json.loads((held.metadata() or {}).get("classes", "[]"))
        if path.name == BUNDLE_WEIGHTS_FILE:  # there the model is a part of what is served
            classes = json.loads((folder / "bundle.json").read_text())["classes"]
            tensors = {name.removeprefix("model."): value for name, value in tensors.items()}
    except PermissionError:
        raise
    except (SafetensorError, ValueError, OSError, KeyError, TypeError, RecursionError) as error:
        remedy = "it was damaged, or another program wrote it"
        raise ValueError(f"--init-from {path} cannot be read ({error}): {remedy}") from None
    if not isinstance(classes, list):
        raise ValueError(f"--init-from {path} names its classes as {classes!r}, which is no list: it was damaged")
    return PretrainedWeights(str(folder), tensors, classes)


def load_torchvision_weights(config: TrainConfig) -> PretrainedWeights:
    """torchvision's weights for the trial's model: from the data folder, else downloaded into it."""
    if config.model is None or config.model == "lenet":
        raise ValueError(
            f"--init-from {TORCHVISION_WEIGHTS} needs --model with one of "
            f"torchvision's, such as resnet18; got {config.model}"
        )
    models: Any = importlib.import_module("torchvision.models")
    try:
        weights = models.get_model_weights(config.model).DEFAULT
    except ValueError as error:
        raise ValueError(f"--init-from {TORCHVISION_WEIGHTS}: {error}") from None
    path = Path(config.data) / "weights" / weights.url.rpartition("/")[2]
    try:
        tensors = torch.hub.load_state_dict_from_url(
            weights.url, str(path.parent), progress=False, check_hash=True, weights_only=True
        )
    except (OSError, RuntimeError) as error:
        raise ValueError(
            f"--init-from {TORCHVISION_WEIGHTS}: {path} is not there or "
            f"damaged, and could not be downloaded ({error}): "
            f"put {weights.url} there"
        ) from error
    return PretrainedWeights(f"{TORCHVISION_WEIGHTS}'s {config.model}", tensors, list(weights.meta["categories"]))


def initialize_from_pretrained(
    model: nn.Module, pretrained: PretrainedWeights, classes: list[str], reuse_head: bool
) -> list[str]:
    """Give `model` the weights learned before; the classes whose rows of the head it took over, by their names.

    Rows of other classes stay as they were drawn.
    """
    head, own = find_classifier_layer(model, len(classes)), model.state_dict()
    rows = {name: value for name, value in own.items() if name.rpartition(".")[0] == head}
    with torch.no_grad():
        for name in own.keys() - rows.keys():
            own[name].copy_(find_matching_tensor(pretrained, name, own[name]))
        same = [name for name in classes if name in pretrained.classes] if reuse_head else []
        learned_rows = {name: pretrained.tensors.get(name) for name in rows}
        if not same or not all(has_matching_rows(learned_rows[name], rows[name], pretrained.classes) for name in rows):
            return []  # a head of another make has no rows to take over
        softer = {name: value for name, value in learned_rows.items() if value is not None}
        if len(same) < len(classes):
            softer = rescale_reused_rows(softer, mean_row_norm(rows[f"{head}.weight"]), f"{head}.weight")
        for name, value in softer.items():
            for label in same:
                rows[name][classes.index(label)] = value[pretrained.classes.index(label)]
    return same


def has_matching_rows(pretrained_rows: Tensor | None, head_rows: Tensor, classes: list[str]) -> bool:
    """Whether rows learned before are of the same kind, one for each class."""
    return (
        pretrained_rows is not None
        and pretrained_rows.shape[1:] == head_rows.shape[1:]
        and len(pretrained_rows) == len(classes)
    )


def rescale_reused_rows(rows: dict[str, Tensor], drawn_norm: float, weight_name: str) -> dict[str, Tensor]:
    """Rows as they are wanted beside others that have yet to learn, whose length is `drawn`: centred and shorter.

    Softmax sees differences only, so what all rows have in common goes. Rows that have learned are several times as
    long as drawn ones: as they are, new classes have to outshout them, and then outshout them where they were right.
    """
    centred = {name: value - value.mean(0) for name, value in rows.items()}
    share = REUSED_ROW_NORM * drawn_norm / max(mean_row_norm(centred[weight_name]), 1e-12)
    return {name: share * value for name, value in centred.items()}


def mean_row_norm(rows: Tensor) -> float:
    """The mean length of rows."""
    return float(rows.flatten(1).norm(dim=1).mean())


def find_matching_tensor(pretrained: PretrainedWeights, name: str, expected: Tensor) -> Tensor:
    """The tensor of a name, for a place of that shape. Weights for colours serve grey by their sum."""
    value = pretrained.tensors.get(name)
    if value is not None and value.ndim == 4 and value.shape[1] == 3 and expected.shape[1] == 1:
        value = value.sum(1, keepdim=True)
    if value is None or value.shape != expected.shape:
        found = "missing" if value is None else str([*value.shape])
        raise ValueError(
            f"--init-from {pretrained.origin} is another model: its {name} is {found}, here it is {[*expected.shape]}; "
            "give the --model and --image-size it was trained with"
        )
    return value


def find_classifier_layer(model: nn.Module, num_classes: int) -> str:
    """The name of the layer whose rows are the classes: the last one with weights."""
    weighted = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    name, layer = weighted[-1] if weighted else ("", None)
    if layer is None or len(layer.weight) != num_classes:
        raise ValueError(f"the model's last layer, {name or 'none'}, has no row for each of {num_classes} classes")
    return name


def list_stages(model: nn.Module) -> list[tuple[str, list[nn.Module]]]:
    """The parts of a model with weights, from the bottom up, each with the norms that follow it."""
    found: list[tuple[str, list[nn.Module]]] = []
    for name, module in flatten_children(model, ""):
        if found and isinstance(module, NORM_LAYERS):
            found[-1][1].append(module)
        elif any(True for _ in module.parameters()):
            found.append((name, [module]))
    return found


def flatten_children(module: nn.Module, prefix: str) -> list[tuple[str, nn.Module]]:
    """Children, with those of sequences in their place."""
    found: list[tuple[str, nn.Module]] = []
    for name, child in module.named_children():
        whole = f"{prefix}{name}"
        found += flatten_children(child, f"{whole}.") if isinstance(child, nn.Sequential) else [(whole, child)]
    return found


def freeze_stages(model: nn.Module, count: int) -> list[nn.Module]:
    """The modules of the lowest `count` stages, whose weights no longer learn."""
    found = list_stages(model)
    if count >= max(len(found), 1):
        names = ", ".join(name for name, _ in found)
        raise ValueError(
            f"--freeze-stages {count} leaves nothing to learn: the model has {len(found)} stages ({names})"
        )
    held = [module for _, modules in found[:count] for module in modules]
    for module in held:
        module.requires_grad_(False)
    return held


def build_lr_scales(model: nn.Module, config: TrainConfig, num_classes: int) -> dict[str, float]:
    """For each weight its share of the learning rate: what has learned before learns slowly, the head does not."""
    body = config.body_lr_scale if config.body_lr_scale is not None else DEFAULT_BODY_LR if config.init_from else 1.0
    if body == 1:
        return {}
    head = find_classifier_layer(model, num_classes)
    return {name: 1.0 if name.rpartition(".")[0] == head else body for name, _ in model.named_parameters()}
