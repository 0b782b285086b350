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

from equipoise.bundle.engine_benchmark import EngineResult, benchmark_engines, select_engine
from equipoise.bundle.engines import ENGINES, Engine, InferenceModule
from equipoise.bundle.evaluation import Evaluation, confusion_matrix, evaluate_predictions, fit_temperature
from equipoise.bundle.manifest import MANIFEST_FILE, MODEL_CARD_FILE, REFERENCE_FILE, write_manifest
from equipoise.config import TrainConfig
from equipoise.drift.profiling.build_profile import LabelledOutputs, build_profile_arrays
from equipoise.hardware import describe_hardware
from equipoise.runs.folder import read_record
from equipoise.runs.record import Record
from equipoise.storage.atomic import atomic_folder, open_local_copy, read_json
from equipoise.training.finetune import find_classifier_layer
from equipoise.workloads import Split, Workload, load_workload
from jobs.cli.paths import validate_locations
from jobs.publishing.export import compile_aotinductor, export_programs
from jobs.publishing.model_card import render_model_card

MAX_COMPARED_IMAGES = 1000  # pictures of the test split on which engines are compared
MAX_PROFILE_IMAGES = 20_000  # pictures of the reference from which drift is told
MAX_REFERENCE_IMAGES = 200  # pictures of the reference that travel with the bundle, to be shown beside others
HELD_OUT_SPLITS = ("validation", "reference", "test")


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
    results: list[EngineResult]
    """of all engines"""
    engine: str
    """the one chosen"""
    why: str
    accuracy: float
    """on the test split"""


def publish_bundle(request: PublishRequest, extra_manifest: dict[str, Any] | None = None) -> Published:
    """Make a bundle of a run; `more` facts are of who asks for it."""
    if request.name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", request.name):
        raise ValueError(f"--name {request.name!r} cannot stand in an address: use letters, digits, dots and dashes")
    validate_locations(request.run, request.plan, request.out)
    record = load_publishable_record(request.run)
    plan = load_plan_document(request.plan)
    with atomic_folder(request.out.absolute(), last_file=MANIFEST_FILE) as folder:
        made = load_workload(record.config)
        served = InferenceModule(*load_model(request.run, made), made.mean, made.std).eval()
        export_programs(served, example_batch(made.test), folder)
        results = benchmark_bundle_engines(served, made.test, folder, request.native)
        engine, why = select_engine([one for one in results if one.engine in ENGINES])
        parts = {part: getattr(made, part) for part in HELD_OUT_SPLITS} | {
            "apart": made.false_alarm_split or made.validation
        }
        answers = {part: predict_split(ENGINES[engine](folder), split) for part, split in parts.items()}
        heat = fit_temperature(*answers["validation"][::2])
        found = evaluate_predictions(*answers["test"][::2], list(made.classes), heat)
        kept = build_reference_arrays(made, answers["reference"], heat)
        if request.drift:
            usual, apart = (sample_profile_outputs(parts[part], *answers[part]) for part in ("reference", "apart"))
            kept |= build_profile_arrays(ENGINES[engine](folder), usual, heat, apart)
        np.savez_compressed(folder / REFERENCE_FILE, **kept)
        facts = build_manifest(request.name, record, made, found) | {"engine": build_engine_entry(engine, why, results)}
        facts |= (extra_manifest or {}) | {"plan": plan}
        (folder / MODEL_CARD_FILE).write_text(render_model_card(facts), encoding="utf-8")
        write_manifest(folder, facts)
    return Published(record=record, results=results, engine=engine, why=why, accuracy=found.accuracy)


def load_plan_document(plan_location: Path | None) -> Any:
    """Read the plan of a file, or of the folder of a sweep."""
    if plan_location is None:
        return None
    file = plan_location / "plan.json" if plan_location.is_dir() else plan_location
    if not file.is_file():
        raise ValueError(f"--plan {plan_location} is not there: give the plan.json of a sweep or of jobs.plan")
    facts = read_json(file)
    if not isinstance(facts, dict) or not isinstance(facts.get("plan"), dict):
        raise ValueError(f"--plan {plan_location} recommends no plan: give the plan.json of a sweep or of jobs.plan")
    return facts


def load_publishable_record(run_folder: Path) -> Record:
    """Read the record of a run that has a model."""
    for name in ("record.json", "model.safetensors"):
        if not (run_folder / name).is_file():
            raise ValueError(f"--run {run_folder} has no {name}: give the folder of a run that has ended")
    record = read_record(run_folder / "record.json")
    if record.failed:
        raise ValueError(f"--run {run_folder} {record.outcome}: give one that has ended well")
    return record


def load_model(run_folder: Path, workload: Workload) -> tuple[nn.Module, str | None]:
    """Load the run's model, and find the layer before which its features are taken, if it has one."""
    model = workload.model()
    try:
        with open_local_copy(run_folder / "model.safetensors") as file:
            model.load_state_dict(load_file(file))
    except (RuntimeError, ValueError, OSError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ValueError(
            f"--run {run_folder} does not hold the weights of {workload.name}'s model ({reason})"
        ) from None
    try:
        return model.float().eval(), find_classifier_layer(model, len(workload.classes))
    except ValueError:
        return model.float().eval(), None


def example_batch(split: Split) -> Tensor:
    """Return two pictures to export the model with."""
    return sample_images(split, 2)


def sample_images(split: Split, max_count: int) -> Tensor:
    """Return up to `most` pictures, evenly over the split."""
    return torch.stack([split.pictures[int(index)] for index in evenly_spaced_indices(split, max_count)])


def evenly_spaced_indices(split: Split, max_count: int) -> NDArray[np.int64]:
    """Return up to `most` places, evenly over the split."""
    return np.linspace(0, len(split) - 1, min(max_count, len(split))).astype(np.int64)


def benchmark_bundle_engines(
    inference_module: InferenceModule, test_split: Split, folder: Path, include_native: bool
) -> list[EngineResult]:
    """Time all engines on the test split; AOTInductor beside them, though it is never shipped: it is native code."""
    some = sample_images(test_split, MAX_COMPARED_IMAGES)

    @torch.inference_mode()
    def truth(batch: Tensor) -> tuple[Tensor, Tensor]:
        logits, features = inference_module(batch)
        return logits, features

    makers: dict[str, Callable[[], Engine]] = {name: partial(make, folder) for name, make in ENGINES.items()}
    with tempfile.TemporaryDirectory() as scratch:
        if include_native:
            makers["aotinductor"] = partial(compile_aotinductor, inference_module, some, Path(scratch))
        return benchmark_engines(makers, truth, some)


def predict_split(engine: Engine, split: Split) -> tuple[Any, Any, Any]:
    """Return scores before softmax, features and labels of a split."""
    parts = [
        engine(torch.stack([split.pictures[int(i)] for i in chunk])) for chunk in torch.arange(len(split)).split(64)
    ]
    logits, features = (torch.cat([part[place] for part in parts]).numpy() for place in (0, 1))
    return logits, features, split.labels.numpy()


def build_reference_arrays(workload: Workload, outputs: tuple[Any, Any, Any], temperature: float) -> dict[str, Any]:
    """Collect what later requests are compared with: the model's answers on examples it has not learned from."""
    logits, features, labels = outputs
    return {
        "logits": logits.astype(np.float32),
        "features": features.astype(np.float32),
        "labels": labels,
        "temperature": np.float64(temperature),
        "confusion": confusion_matrix(logits, labels, len(workload.classes)),
        "pictures": sample_images(workload.reference, MAX_REFERENCE_IMAGES).numpy(),
        "places": evenly_spaced_indices(workload.reference, MAX_REFERENCE_IMAGES),
    }


def sample_profile_outputs(split: Split, logits: Any, features: Any, labels: Any) -> LabelledOutputs:
    """Pick some pictures of a split, with what was answered of them."""
    some = evenly_spaced_indices(split, MAX_PROFILE_IMAGES)
    held = torch.stack([split.pictures[int(index)] for index in some])
    return LabelledOutputs(held, logits[some], features[some], labels[some])


def build_manifest(name: str | None, record: Record, workload: Workload, evaluation: Evaluation) -> dict[str, Any]:
    """Build the facts of bundle.json but for its engine."""
    channels, height, width = workload.test.pictures[0].shape
    trial: TrainConfig = record.config
    return {
        "name": name or workload.name,
        "workload": trial.workload,
        "classes": list(workload.classes),
        "input": {"type": "uint8", "channels": channels, "height": height, "width": width},
        "preprocessing": {
            "picture": "upright by EXIF, the middle square, bilinear to the input's size, RGB or grey by its channels",
            "mean": list(workload.mean),
            "std": list(workload.std),
        },
        "examples": {part: len(getattr(workload, part)) for part in ("train", *HELD_OUT_SPLITS)},
        "metrics": asdict(evaluation),
        "config": asdict(trial),
        "parameters": sum(value.numel() for value in workload.model().parameters()),
        "target": record.target,
        "published": datetime.now(UTC).isoformat(timespec="seconds"),
        "status": record.status,
        "seen": record.laps[-1].seen if record.laps else 0,
        "machine": describe_hardware(torch.device("cpu")),
        "versions": {name: version(name) for name in ("equipoise", "torch", "torchvision", "onnxruntime", "numpy")}
        | {"python": platform.python_version()},
    }


def build_engine_entry(engine: str, reason: str, engine_results: list[EngineResult]) -> dict[str, Any]:
    """Describe the engine chosen, why, and what all of them measured."""
    return {"name": engine, "why": reason, "table": [asdict(one) for one in engine_results]}
