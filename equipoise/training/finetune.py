"""Initialize a model from pretrained weights: which weights are reused, frozen or trained at a lower rate."""

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.storage.atomic import open_local_copy
from equipoise.storage.node_cache import find_cache_folder, is_url
from equipoise.storage.object_store import parse_location
from equipoise.training.torch_state import collect_weights
from equipoise.workloads import Workload
from equipoise.workloads.detection.torchvision_detectors import rename_detector_weights, require_detector_weights
from equipoise.workloads.text.hugging_face_weights import is_transformers_folder, load_hugging_face_weights
from equipoise.workloads.text.workload import TextWorkload

TORCHVISION_WEIGHTS = "torchvision"
BUNDLE_WEIGHTS_FILE = "weights.safetensors"
WEIGHTS_FILES = (BUNDLE_WEIGHTS_FILE, "model.safetensors")  # in a bundle, in a run
DEFAULT_BODY_LR = 0.1  # fraction of the learning rate for pretrained layers
REUSED_ROW_NORM = 0.5  # norm of reused rows over that of random ones: the best of 0.3, 0.5 and 1 on shared classes
NORM_LAYERS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)


@dataclass(frozen=True)
class PretrainedWeights:
    """Weights of a trained model, and the classes that the rows of its classifier stand for."""

    origin: str
    tensors: dict[str, Tensor]
    classes: list[str]
    new_names: frozenset[str] = frozenset()  # tensors that were fitted to other tokens, and so need training


def load_pretrained(config: TrainConfig, workload: Workload | None = None) -> PretrainedWeights | None:
    """Return the weights that --init-from names, or None without that option; of transformers for a `workload`."""
    if config.init_from is None:
        return None
    if isinstance(workload, TextWorkload) and is_transformers_folder(config.init_from):
        tensors, new_names = load_hugging_face_weights(config.init_from, workload.vocabulary)
        return PretrainedWeights(config.init_from, tensors, [], new_names)
    return (
        load_torchvision_weights(config)
        if config.init_from == TORCHVISION_WEIGHTS
        else load_from_run_or_bundle(parse_location(config.init_from))
    )


def load_from_run_or_bundle(folder: Path) -> PretrainedWeights:
    """Read the weights and classes of the model in a bundle or a run."""
    path = next((folder / name for name in WEIGHTS_FILES if (folder / name).is_file()), None)
    if path is None:
        raise EquipoiseError(
            "pretrained-unavailable",
            f"--init-from {folder} holds no model: give a bundle or a finished run, or {TORCHVISION_WEIGHTS}",
        )
    try:
        with open_local_copy(path) as file, safe_open(file, "pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118  # not a mapping
            classes = json.loads((stored.metadata() or {}).get("classes", "[]"))
        if path.name == BUNDLE_WEIGHTS_FILE:  # the served program holds the model under a prefix
            classes = json.loads((folder / "bundle.json").read_text())["classes"]
            tensors = {name.removeprefix("model."): value for name, value in tensors.items()}
    except PermissionError:
        raise
    except (SafetensorError, ValueError, OSError, KeyError, TypeError, RecursionError) as error:
        reason = "the file is damaged or was written by another program"
        raise EquipoiseError("file-damaged", f"cannot read --init-from {path}: {reason} ({error})") from None
    if not isinstance(classes, list):
        raise EquipoiseError(
            "file-damaged",
            f"cannot read --init-from {path}: its classes are {classes!r}, not a list; the file is damaged",
        )
    return PretrainedWeights(str(folder), tensors, classes)


def load_torchvision_weights(config: TrainConfig) -> PretrainedWeights:
    """Load torchvision's weights for the configured model from the data folder, downloading them if needed."""
    if config.model is None or config.model == "lenet":
        raise EquipoiseError(
            "option-conflict",
            f"--init-from {TORCHVISION_WEIGHTS} needs a torchvision --model such as resnet18, got {config.model}",
        )
    require_detector_weights(config.model)
    models: Any = importlib.import_module("torchvision.models")
    try:
        weights = models.get_model_weights(config.model).DEFAULT
    except ValueError as error:  # torchvision's, for a model that it does not have
        raise EquipoiseError("model-unknown", f"cannot use --init-from {TORCHVISION_WEIGHTS}: {error}") from None
    path = find_weights_folder(config.data) / weights.url.rpartition("/")[2]
    try:
        tensors = torch.hub.load_state_dict_from_url(
            weights.url, str(path.parent), progress=False, check_hash=True, weights_only=True
        )
    except (OSError, RuntimeError, UnpicklingError) as error:
        raise EquipoiseError(
            "pretrained-unavailable",
            f"cannot load --init-from {TORCHVISION_WEIGHTS}: {path} is damaged, or missing and cannot be downloaded "
            f"({first_error_line(error)})",
            f"put {weights.url} there",
        ) from error
    tensors = rename_detector_weights(config.model, tensors)
    return PretrainedWeights(f"{TORCHVISION_WEIGHTS}'s {config.model}", tensors, list(weights.meta["categories"]))


def find_weights_folder(data: str) -> Path:
    """Return the folder that torchvision's weights are downloaded to; that of this machine for data behind a URL."""
    return (find_cache_folder() if is_url(data) else Path(data)) / "weights"


def initialize_from_pretrained(
    model: nn.Module,
    pretrained: PretrainedWeights,
    classes: list[str],
    reuse_head: bool,
    has_independent_classes: bool = False,
) -> list[str]:
    """Copy the pretrained weights into `model`; return the classes whose rows of the classifier were reused.

    Classes are matched by name. Rows of other classes keep their initialization: a detector's begin at their prior.
    Beside these, rows are reused as they are where classes are independent; else they are scaled, since softmax
    compares them. Of a model without classes, all weights are copied. A classifier that a model names itself, such as
    that of torchvision's detectors, has several rows per class, and is copied where the classes are the same.
    """
    is_named, weights = find_named_classifier(model) is not None, collect_weights(model)
    head = find_classifier(model, len(classes)) if classes else ""
    rows = {name: value for name, value in weights.items() if head and name.startswith(f"{head}.")}
    with torch.no_grad():
        for name in (name for name in weights if name not in rows):
            weights[name].copy_(find_matching_tensor(pretrained, name, weights[name]))
        if is_named:
            return copy_classifier(rows, pretrained, classes) if reuse_head else []
        shared = [label for label in classes if label in pretrained.classes] if reuse_head else []
        old_rows = {name: pretrained.tensors.get(name) for name in rows}
        if not shared or not all(has_matching_rows(old_rows[name], rows[name], pretrained.classes) for name in rows):
            return []  # a classifier of another shape has no rows to reuse
        reused = {name: value for name, value in old_rows.items() if value is not None}
        if len(shared) < len(classes) and not has_independent_classes:
            reused = rescale_reused_rows(reused, mean_row_norm(rows[f"{head}.weight"]), f"{head}.weight")
        for name, value in reused.items():
            for label in shared:
                rows[name][classes.index(label)] = value[pretrained.classes.index(label)]
    return shared


def copy_classifier(weights: dict[str, Tensor], pretrained: PretrainedWeights, classes: list[str]) -> list[str]:
    """Copy a classifier without one row per class as a whole, and return its classes; nothing if they are others."""
    if pretrained.classes != classes:
        return []
    for name, value in weights.items():
        value.copy_(find_matching_tensor(pretrained, name, value))
    return classes


def has_matching_rows(pretrained_rows: Tensor | None, head_rows: Tensor, classes: list[str]) -> bool:
    """Return whether the pretrained rows have the shape of the new ones, with one row per pretrained class."""
    return (
        pretrained_rows is not None
        and pretrained_rows.shape[1:] == head_rows.shape[1:]
        and len(pretrained_rows) == len(classes)
    )


def rescale_reused_rows(rows: dict[str, Tensor], drawn_norm: float, weight_name: str) -> dict[str, Tensor]:
    """Center reused rows and scale them to fit beside random rows of the mean norm `drawn_norm`.

    Softmax only sees differences, so the mean of all rows is removed. Trained rows are several times as long as
    random ones: unscaled, new classes would have to outgrow them, and would then win where the old ones were right.
    """
    centered = {name: value - value.mean(0) for name, value in rows.items()}
    factor = REUSED_ROW_NORM * drawn_norm / max(mean_row_norm(centered[weight_name]), 1e-12)
    return {name: factor * value for name, value in centered.items()}


def mean_row_norm(rows: Tensor) -> float:
    """Return the mean Euclidean norm of the rows."""
    return float(rows.flatten(1).norm(dim=1).mean())


def find_matching_tensor(pretrained: PretrainedWeights, name: str, expected: Tensor) -> Tensor:
    """Return the pretrained tensor `name`, required to have the shape of `expected`.

    For a model of gray images the weights of the three color channels are summed.
    """
    value = pretrained.tensors.get(name)
    if value is None and name.endswith(".num_batches_tracked"):
        return expected  # published weights of detectors have frozen norms, which do not count batches
    if value is not None and value.ndim == 4 and value.shape[1] == 3 and expected.shape[1] == 1:
        value = value.sum(1, keepdim=True)
    if value is None or value.shape != expected.shape:
        actual = "missing" if value is None else str([*value.shape])
        raise EquipoiseError(
            "pretrained-mismatch",
            f"--init-from {pretrained.origin} holds another model: "
            f"its {name} is {actual}, here it is {[*expected.shape]}",
            "give the --model it was trained with, and the --image-size of images",
        )
    return value


def find_classifier_layer(model: nn.Module, num_classes: int) -> str:
    """Return the name of the classifier, the last linear or convolutional layer, with one row per class."""
    weighted = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    name, layer = weighted[-1] if weighted else ("", None)
    if layer is None or len(layer.weight) != num_classes:
        raise EquipoiseError(
            "model-invalid",
            f"cannot find the classifier: the last linear or convolutional layer ({name or 'none'}) "
            f"does not have {num_classes} rows, one per class",
        )
    return name


def find_classifier(model: nn.Module, num_classes: int) -> str:
    """Return the name of the part of a model that depends on its classes: what the model says, or its last layer."""
    return find_named_classifier(model) or find_classifier_layer(model, num_classes)


def find_named_classifier(model: nn.Module) -> str | None:
    """Return the part that a model itself names as its classifier; None where it is the last layer."""
    name = getattr(model, "classifier_name", None)
    return name if isinstance(name, str) else None


def list_stages(model: nn.Module) -> list[tuple[str, list[nn.Module]]]:
    """List the stages of a model from the bottom up: each layer or block with weights, and the norms that follow it."""
    stages: list[tuple[str, list[nn.Module]]] = []
    for name, module in flatten_children(model, ""):
        if stages and isinstance(module, NORM_LAYERS):
            stages[-1][1].append(module)
        elif any(True for _ in module.parameters()):
            stages.append((name, [module]))
    return stages


def flatten_children(module: nn.Module, prefix: str) -> list[tuple[str, nn.Module]]:
    """List the children of a module by name, replacing each `nn.Sequential` by its own children."""
    children: list[tuple[str, nn.Module]] = []
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        children += flatten_children(child, f"{path}.") if isinstance(child, nn.Sequential) else [(path, child)]
    return children


def freeze_stages(model: nn.Module, count: int) -> list[nn.Module]:
    """Freeze the weights of the lowest `count` stages, and return the modules of these stages."""
    stages = list_stages(model)
    if count >= max(len(stages), 1):
        names = ", ".join(name for name, _ in stages)
        raise EquipoiseError(
            "option-range",
            f"--freeze-stages {count} leaves nothing to train: the model has {len(stages)} stages ({names})",
        )
    frozen = [module for _, modules in stages[:count] for module in modules]
    for module in frozen:
        module.requires_grad_(False)
    return frozen


def effective_body_lr_scale(config: TrainConfig) -> float:
    """Return the factor on the learning rate of all layers below the classifier."""
    if config.body_lr_scale is not None:
        return config.body_lr_scale
    return DEFAULT_BODY_LR if config.init_from else 1.0


def build_lr_scales(model: nn.Module, config: TrainConfig, num_classes: int) -> dict[str, float]:
    """Return each weight's fraction of the learning rate: 1 for the classifier, less for pretrained layers.

    Empty if all weights learn at the full rate.
    """
    body = effective_body_lr_scale(config)
    if not num_classes and config.body_lr_scale is not None:
        raise EquipoiseError(
            "option-conflict", "--body-lr-scale has no effect on a model without classes: it has no classifier"
        )
    if body == 1 or not num_classes:
        return {}
    head = find_classifier(model, num_classes)
    return {name: 1.0 if name.startswith(f"{head}.") else body for name, _ in model.named_parameters()}
