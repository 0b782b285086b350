"""Make a bundle of a run: its programs, the fastest engine, how well it does, and what requests are compared with."""

import platform
import re
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from equipoise.bundle import engine_benchmark as contest
from equipoise.bundle import engines, manifest
from equipoise.bundle import evaluation as judged
from equipoise.bundle.engine_benchmark import Result
from equipoise.bundle.engines import Engine, Served
from equipoise.bundle.evaluation import Judged
from equipoise.config import Trial
from equipoise.drift.profiling import build_profile as publishing
from equipoise.hardware import machine
from equipoise.runs import folder as runs
from equipoise.runs.record import Record
from equipoise.storage import atomic as store
from equipoise.training.finetune import head_of
from equipoise.workloads import Split, Workload, workload
from jobs.cli.paths import require_plain
from jobs.publishing.export import compiled, export
from jobs.publishing.model_card import card

MOST_COMPARED = 1000  # pictures of the test split on which engines are compared
MOST_WATCHED = 20_000  # pictures of the reference from which drift is told
MOST_KEPT = 200  # pictures of the reference that travel with the bundle, to be shown beside others
PARTS = ("validation", "reference", "test")


@dataclass(frozen=True, kw_only=True)
class PublishRequest:
    """What is published, and where."""

    run: Path
    """folder or URL of a finished run"""
    out: Path
    """folder or URL of the bundle; must not exist"""
    name: str | None = None
    """of the model in the service; the workload's if not given"""
    plan: Path | None = None
    """plan.json that the run was made by"""
    drift: bool = True
    """find out what requests without drift look like, and what each cause of drift would do"""
    native: bool = True
    """time AOTInductor's native code beside the engines"""


@dataclass(frozen=True, kw_only=True)
class Published:
    """What came of it."""

    record: Record
    """of the run"""
    results: list[Result]
    """of all engines"""
    engine: str
    """the one chosen"""
    why: str
    accuracy: float
    """on the test split"""


def publish(request: PublishRequest, more: dict[str, Any] | None = None) -> Published:
    """Make a bundle of a run; `more` facts are of who asks for it."""
    if request.name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", request.name):
        raise ValueError(f"--name {request.name!r} cannot stand in an address: use letters, digits, dots and dashes")
    require_plain(request.run, request.plan, request.out)
    record = finished(request.run)
    plan = planned(request.plan)
    with store.folder(request.out.absolute(), last=manifest.FACTS) as folder:
        made = workload(record.trial)
        served = Served(*trained(request.run, made), made.mean, made.std).eval()
        export(served, example(made.test), folder)
        results = compared(served, made.test, folder, request.native)
        engine, why = contest.winner([one for one in results if one.engine in engines.ENGINES])
        parts = {part: getattr(made, part) for part in PARTS} | {"apart": made.apart or made.validation}
        answers = {part: answered(engines.ENGINES[engine](folder), split) for part, split in parts.items()}
        heat = judged.temperature(*answers["validation"][::2])
        found = judged.judged(*answers["test"][::2], list(made.classes), heat)
        kept = reference(made, answers["reference"], heat)
        if request.drift:
            usual, apart = (told(parts[part], *answers[part]) for part in ("reference", "apart"))
            kept |= publishing.arrays(engines.ENGINES[engine](folder), usual, heat, apart)
        np.savez_compressed(folder / manifest.REFERENCE, **kept)
        facts = described(request.name, record, made, found) | {"engine": engine_facts(engine, why, results)}
        facts |= (more or {}) | {"plan": plan}
        (folder / manifest.CARD).write_text(card(facts), encoding="utf-8")
        manifest.sealed(folder, facts)
    return Published(record=record, results=results, engine=engine, why=why, accuracy=found.accuracy)


def planned(path: Path | None) -> Any:
    """Read the plan of a file, or of the folder of a sweep."""
    if path is None:
        return None
    file = path / "plan.json" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"--plan {path} is not there: give the plan.json of a sweep or of jobs.plan")
    facts = store.read_json(file)
    if not isinstance(facts, dict) or not isinstance(facts.get("plan"), dict):
        raise ValueError(f"--plan {path} recommends no plan: give the plan.json of a sweep or of jobs.plan")
    return facts


def finished(run: Path) -> Record:
    """Read the record of a run that has a model."""
    for name in ("record.json", "model.safetensors"):
        if not (run / name).is_file():
            raise ValueError(f"--run {run} has no {name}: give the folder of a run that has ended")
    record = runs.read(run / "record.json")
    if record.ended.startswith("failed"):
        raise ValueError(f"--run {run} {record.ended}: give one that has ended well")
    return record


def trained(run: Path, made: Workload) -> tuple[nn.Module, str | None]:
    """Load the run's model, and find the layer before which its features are taken, if it has one."""
    model = made.model()
    try:
        with store.fetched(run / "model.safetensors") as file:
            model.load_state_dict(load_file(file))
    except (RuntimeError, ValueError, OSError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ValueError(f"--run {run} does not hold the weights of {made.name}'s model ({reason})") from None
    try:
        return model.float().eval(), head_of(model, len(made.classes))
    except ValueError:
        return model.float().eval(), None


def example(split: Split) -> Tensor:
    """Return two pictures to export the model with."""
    return pictures(split, 2)


def pictures(split: Split, most: int) -> Tensor:
    """Return up to `most` pictures, evenly over the split."""
    return torch.stack([split.pictures[int(index)] for index in evenly(split, most)])


def evenly(split: Split, most: int) -> NDArray[np.int64]:
    """Return up to `most` places, evenly over the split."""
    return np.linspace(0, len(split) - 1, min(most, len(split))).astype(np.int64)


def compared(served: Served, test: Split, folder: Path, native: bool) -> list[Result]:
    """Time all engines on the test split; AOTInductor beside them, though it is never shipped: it is native code."""
    some = pictures(test, MOST_COMPARED)

    @torch.inference_mode()
    def truth(batch: Tensor) -> tuple[Tensor, Tensor]:
        logits, features = served(batch)
        return logits, features

    makers: dict[str, Callable[[], Engine]] = {name: partial(make, folder) for name, make in engines.ENGINES.items()}
    with tempfile.TemporaryDirectory() as scratch:
        if native:
            makers["aotinductor"] = partial(compiled, served, some, Path(scratch))
        return contest.contest(makers, truth, some)


def answered(engine: Engine, split: Split) -> tuple[Any, Any, Any]:
    """Return scores before softmax, features and labels of a split."""
    parts = [
        engine(torch.stack([split.pictures[int(i)] for i in chunk])) for chunk in torch.arange(len(split)).split(64)
    ]
    logits, features = (torch.cat([part[place] for part in parts]).numpy() for place in (0, 1))
    return logits, features, split.labels.numpy()


def reference(made: Workload, answers: tuple[Any, Any, Any], heat: float) -> dict[str, Any]:
    """Collect what later requests are compared with: the model's answers on examples it has not learned from."""
    logits, features, labels = answers
    return {
        "logits": logits.astype(np.float32),
        "features": features.astype(np.float32),
        "labels": labels,
        "temperature": np.float64(heat),
        "confusion": judged.confusion(logits, labels, len(made.classes)),
        "pictures": pictures(made.reference, MOST_KEPT).numpy(),
        "places": evenly(made.reference, MOST_KEPT),
    }


def told(split: Split, logits: Any, features: Any, labels: Any) -> publishing.Told:
    """Pick some pictures of a split, with what was answered of them."""
    some = evenly(split, MOST_WATCHED)
    held = torch.stack([split.pictures[int(index)] for index in some])
    return publishing.Told(held, logits[some], features[some], labels[some])


def described(name: str | None, record: Record, made: Workload, found: Judged) -> dict[str, Any]:
    """Build the facts of bundle.json but for its engine."""
    channels, height, width = made.test.pictures[0].shape
    trial: Trial = record.trial
    return {
        "name": name or made.name,
        "workload": trial.workload,
        "classes": list(made.classes),
        "input": {"type": "uint8", "channels": channels, "height": height, "width": width},
        "preprocessing": {
            "picture": "upright by EXIF, the middle square, bilinear to the input's size, RGB or grey by its channels",
            "mean": list(made.mean),
            "std": list(made.std),
        },
        "examples": {part: len(getattr(made, part)) for part in ("train", *PARTS)},
        "metrics": asdict(found),
        "trial": asdict(trial),
        "parameters": sum(value.numel() for value in made.model().parameters()),
        "target": record.target,
        "published": datetime.now(UTC).isoformat(timespec="seconds"),
        "ended": record.ended,
        "seen": record.laps[-1].seen if record.laps else 0,
        "machine": machine(torch.device("cpu")),
        "versions": {name: version(name) for name in ("equipoise", "torch", "torchvision", "onnxruntime", "numpy")}
        | {"python": platform.python_version()},
    }


def engine_facts(engine: str, why: str, results: list[Result]) -> dict[str, Any]:
    """Describe the engine chosen, why, and what all of them measured."""
    return {"name": engine, "why": why, "table": [asdict(one) for one in results]}
