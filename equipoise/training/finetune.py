"""Starts a model from what another one has learned: which weights it takes over, which stay, which learn slowly."""

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from equipoise.config import Trial
from equipoise.storage import atomic as store
from equipoise.storage import object_store

PUBLISHED = "torchvision"
PUBLISHED_WEIGHTS = "weights.safetensors"
FILES = (PUBLISHED_WEIGHTS, "model.safetensors")  # of a bundle, of a run
SLOW = 0.1  # share of the learning rate for what has learned before
SOFT = 0.5  # length of rows taken over, in lengths of drawn ones: the best of 0.3, 0.5 and 1 on shared classes
NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)


@dataclass(frozen=True)
class Learned:
    """The weights of a model, and the classes that the rows of its head stand for."""

    origin: str
    tensors: dict[str, Tensor]
    classes: list[str]


def learned(trial: Trial) -> Learned | None:
    """What `trial` starts from; None if from nothing."""
    if trial.init is None:
        return None
    return published(trial) if trial.init == PUBLISHED else kept(object_store.place(trial.init))


def kept(folder: Path) -> Learned:
    """The model of a bundle or of a run."""
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None:
        raise ValueError(f"--init {folder} holds no model: give a bundle or a finished run, or {PUBLISHED}")
    try:
        with store.fetched(path) as file, safe_open(file, "pt") as held:
            tensors = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118  # not a mapping
            classes = json.loads((held.metadata() or {}).get("classes", "[]"))
        if path.name == PUBLISHED_WEIGHTS:  # there the model is a part of what is served
            classes = json.loads((folder / "bundle.json").read_text())["classes"]
            tensors = {name.removeprefix("model."): value for name, value in tensors.items()}
    except PermissionError:
        raise
    except (SafetensorError, ValueError, OSError, KeyError, TypeError, RecursionError) as error:
        remedy = "it was damaged, or another program wrote it"
        raise ValueError(f"--init {path} cannot be read ({error}): {remedy}") from None
    if not isinstance(classes, list):
        raise ValueError(f"--init {path} names its classes as {classes!r}, which is no list: it was damaged")
    return Learned(str(folder), tensors, classes)


def published(trial: Trial) -> Learned:
    """torchvision's weights for the trial's model: from the data folder, else downloaded into it."""
    if trial.model is None or trial.model == "lenet":
        raise ValueError(
            f"--init {PUBLISHED} needs --model with one of torchvision's, such as resnet18; got {trial.model}"
        )
    models: Any = importlib.import_module("torchvision.models")
    try:
        weights = models.get_model_weights(trial.model).DEFAULT
    except ValueError as error:
        raise ValueError(f"--init {PUBLISHED}: {error}") from None
    path = Path(trial.data) / "weights" / weights.url.rpartition("/")[2]
    try:
        tensors = torch.hub.load_state_dict_from_url(
            weights.url, str(path.parent), progress=False, check_hash=True, weights_only=True
        )
    except (OSError, RuntimeError) as error:
        raise ValueError(
            f"--init {PUBLISHED}: {path} is not there or damaged, and could not be downloaded ({error}): "
            f"put {weights.url} there"
        ) from error
    return Learned(f"{PUBLISHED}'s {trial.model}", tensors, list(weights.meta["categories"]))


def begun(model: nn.Module, before: Learned, classes: list[str], reuse: bool) -> list[str]:
    """Give `model` the weights learned before; the classes whose rows of the head it took over, by their names.

    Rows of other classes stay as they were drawn.
    """
    head, own = head_of(model, len(classes)), model.state_dict()
    rows = {name: value for name, value in own.items() if name.rpartition(".")[0] == head}
    with torch.no_grad():
        for name in own.keys() - rows.keys():
            own[name].copy_(fitting(before, name, own[name]))
        same = [name for name in classes if name in before.classes] if reuse else []
        learned_rows = {name: before.tensors.get(name) for name in rows}
        if not same or not all(alike(learned_rows[name], rows[name], before.classes) for name in rows):
            return []  # a head of another make has no rows to take over
        softer = {name: value for name, value in learned_rows.items() if value is not None}
        if len(same) < len(classes):
            softer = softened(softer, length(rows[f"{head}.weight"]), f"{head}.weight")
        for name, value in softer.items():
            for label in same:
                rows[name][classes.index(label)] = value[before.classes.index(label)]
    return same


def alike(found: Tensor | None, wanted: Tensor, classes: list[str]) -> bool:
    """Whether rows learned before are of the same kind, one for each class."""
    return found is not None and found.shape[1:] == wanted.shape[1:] and len(found) == len(classes)


def softened(rows: dict[str, Tensor], drawn: float, weight: str) -> dict[str, Tensor]:
    """Rows as they are wanted beside others that have yet to learn, whose length is `drawn`: centred and shorter.

    Softmax sees differences only, so what all rows have in common goes. Rows that have learned are several times as
    long as drawn ones: as they are, new classes have to outshout them, and then outshout them where they were right.
    """
    centred = {name: value - value.mean(0) for name, value in rows.items()}
    share = SOFT * drawn / max(length(centred[weight]), 1e-12)
    return {name: share * value for name, value in centred.items()}


def length(rows: Tensor) -> float:
    """The mean length of rows."""
    return float(rows.flatten(1).norm(dim=1).mean())


def fitting(before: Learned, name: str, wanted: Tensor) -> Tensor:
    """The tensor of a name, for a place of that shape. Weights for colours serve grey by their sum."""
    value = before.tensors.get(name)
    if value is not None and value.ndim == 4 and value.shape[1] == 3 and wanted.shape[1] == 1:
        value = value.sum(1, keepdim=True)
    if value is None or value.shape != wanted.shape:
        found = "missing" if value is None else str([*value.shape])
        raise ValueError(
            f"--init {before.origin} is another model: its {name} is {found}, here it is {[*wanted.shape]}; "
            "give the --model and --size it was trained with"
        )
    return value


def head_of(model: nn.Module, classes: int) -> str:
    """The name of the layer whose rows are the classes: the last one with weights."""
    weighted = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    name, layer = weighted[-1] if weighted else ("", None)
    if layer is None or len(layer.weight) != classes:
        raise ValueError(f"the model's last layer, {name or 'none'}, has no row for each of {classes} classes")
    return name


def stages(model: nn.Module) -> list[tuple[str, list[nn.Module]]]:
    """The parts of a model with weights, from the bottom up, each with the norms that follow it."""
    found: list[tuple[str, list[nn.Module]]] = []
    for name, module in units(model, ""):
        if found and isinstance(module, NORMS):
            found[-1][1].append(module)
        elif any(True for _ in module.parameters()):
            found.append((name, [module]))
    return found


def units(module: nn.Module, prefix: str) -> list[tuple[str, nn.Module]]:
    """Children, with those of sequences in their place."""
    found: list[tuple[str, nn.Module]] = []
    for name, child in module.named_children():
        whole = f"{prefix}{name}"
        found += units(child, f"{whole}.") if isinstance(child, nn.Sequential) else [(whole, child)]
    return found


def frozen(model: nn.Module, count: int) -> list[nn.Module]:
    """The modules of the lowest `count` stages, whose weights no longer learn."""
    found = stages(model)
    if count >= max(len(found), 1):
        names = ", ".join(name for name, _ in found)
        raise ValueError(f"--freeze {count} leaves nothing to learn: the model has {len(found)} stages ({names})")
    held = [module for _, modules in found[:count] for module in modules]
    for module in held:
        module.requires_grad_(False)
    return held


def shares(model: nn.Module, trial: Trial, classes: int) -> dict[str, float]:
    """For each weight its share of the learning rate: what has learned before learns slowly, the head does not."""
    body = trial.body_lr if trial.body_lr is not None else SLOW if trial.init else 1.0
    if body == 1:
        return {}
    head = head_of(model, classes)
    return {name: 1.0 if name.rpartition(".")[0] == head else body for name, _ in model.named_parameters()}
