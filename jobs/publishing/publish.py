"""Publish a run as a bundle: its programs, the fastest engine, its evaluation and the reference for drift."""

import platform
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from equipoise.bundle.engine_benchmark import benchmark_engines, select_engine
from equipoise.bundle.engine_results import EngineEntry, EngineResult
from equipoise.bundle.engines import ENGINES, Engine
from equipoise.bundle.folder import MANIFEST_FILE, MODEL_CARD_FILE, REFERENCE_FILE, write_manifest
from equipoise.bundle.manifest import Manifest, Metrics
from equipoise.drift.adaptation.workload import AdaptationRecipe
from equipoise.errors import EquipoiseError
from equipoise.formatting import last_error_line
from equipoise.hardware import describe_hardware
from equipoise.runs.folder import read_finished_run
from equipoise.runs.record import Record
from equipoise.runs.run_end import find_kept_lap
from equipoise.storage.atomic import atomic_folder, open_local_copy
from equipoise.storage.retry import StoreUnavailable
from equipoise.training.finetune import find_classifier_layer
from equipoise.training.torch_state import load_weights
from equipoise.version import find_version
from equipoise.workloads import Workload, load_workload
from jobs.cli.output_folder import require_outside_bundles
from jobs.cli.paths import validate_locations
from jobs.cli.plan_options import read_recommended_plan, require_planned_settings
from jobs.cli.plan_setup import require_same_setup
from jobs.publishing.export import compile_aotinductor, export_programs
from jobs.publishing.kinds.choose_publication import choose_publication
from jobs.publishing.kinds.publication import Publication
from jobs.publishing.known_conditions import LearnedCondition, condition_arrays, condition_entries
from jobs.publishing.model_card import render_model_card

MAX_COMPARED_EXAMPLES = 1000  # examples of the test split on which engines are timed and compared
HELD_OUT_SPLITS = ("validation", "reference", "test")
PACKAGES = ("torch", "torchvision", "onnxruntime", "numpy")  # whose versions the manifest names beside our own


@dataclass(frozen=True, kw_only=True)
class PublishRequest:
    """Run to publish, the bundle to write and what to include."""

    run: Path
    """folder or URL of a finished run"""
    out: Path
    """folder or URL of the bundle; must not exist"""
    name: str | None = None
    """name of the model in the service; the workload's name if not given"""
    plan: Path | None = None
    """plan.json that the run was trained with, or the folder of a sweep"""
    drift: bool = True
    """profile the reference so that a service can detect drift and name its cause"""
    native: bool = True
    """also time native code of AOTInductor, for comparison only"""


@dataclass(frozen=True, kw_only=True)
class Published:
    """Outcome of a publication: the run, the engines and the evaluation."""

    record: Record
    """record of the run"""
    results: list[EngineResult]
    """measurements of all engines"""
    engine: str
    """name of the engine chosen"""
    why: str
    """reason for choosing it"""
    metrics: Metrics
    """evaluation on the test split"""
    reference_warning: str | None = None
    """one sentence on a reference that is too small to detect drift, or to do so without many false alarms"""
    false_alarm_rate: str | None = None
    """one sentence on the false alarms counted on held-out examples; None if none were counted"""


def publish_bundle(
    request: PublishRequest, recipe: AdaptationRecipe | None = None, learned: Sequence[LearnedCondition] = ()
) -> Published:
    """Publish a run as a bundle; `recipe` is the adaptation to a drift that the run is the result of, if it is.

    `learned` are the conditions that the model knows beside that of its reference split.
    """
    if request.name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", request.name):
        raise EquipoiseError(
            "option-format",
            f"cannot use --name {request.name!r} in a URL",
            "give up to 100 letters, digits, dots, dashes and underscores",
        )
    validate_locations(request.run, request.plan, request.out)
    require_outside_bundles(request.out)
    record = read_finished_run(request.run, "publish")
    recommended = read_recommended_plan(request.plan) if request.plan else None
    if request.plan and recommended:
        require_planned_settings(request.plan, recommended.plan, request.run, record.config)
    with atomic_folder(request.out.absolute(), last_file=MANIFEST_FILE) as folder:
        workload = load_workload(record.config)
        publication = choose_publication(workload, f"publish --run {request.run}")
        if request.plan:
            require_same_setup(request.plan, record.config, workload, run_has_ended=True)
        module = publication.wrap_model(*load_model(request.run, workload)).eval()
        export_publication(publication, module, folder)
        results = benchmark_bundle_engines(publication, module, folder, request.native)
        engine, why = select_engine([result for result in results if result.engine in ENGINES])
        findings = publication.evaluate(ENGINES[engine](folder), request.drift, learned)
        np.savez_compressed(folder / REFERENCE_FILE, **findings.arrays, **condition_arrays(learned))
        entry = EngineEntry(name=engine, why=why, table=results)
        manifest = build_manifest(request.name, record, publication, module, findings.metrics, entry)
        manifest = replace(manifest, plan=recommended.document.to_json() if recommended else None)
        manifest = add_adaptation(manifest, recipe, learned) if recipe else manifest
        notes = [*filter(None, (findings.warning, findings.false_alarm_rate))]
        (folder / MODEL_CARD_FILE).write_text(
            render_model_card(manifest, recommended.plan if recommended else None, notes), encoding="utf-8"
        )
        write_manifest(folder, manifest)
    return Published(
        record=record,
        results=results,
        engine=engine,
        why=why,
        metrics=findings.metrics,
        reference_warning=findings.warning,
        false_alarm_rate=findings.false_alarm_rate,
    )


def load_model(run_folder: Path, workload: Workload) -> tuple[nn.Module, str | None]:
    """Load the run's model, and name its classification head, whose input is the features; None if it has none."""
    model = workload.model()
    try:
        with open_local_copy(run_folder / "model.safetensors") as file:
            load_weights(model, load_file(file))
    except StoreUnavailable:
        raise
    except (RuntimeError, ValueError, OSError, SafetensorError) as error:
        raise EquipoiseError(
            "run-damaged",
            f"cannot publish --run {run_folder}: its weights do not fit the model of {workload.name} "
            f"({last_error_line(error)})",
        ) from None
    try:
        return model.float().eval(), find_classifier_layer(model, len(workload.classes) or 1)
    except EquipoiseError:
        return model.float().eval(), None


def export_publication(publication: Publication, module: nn.Module, folder: Path) -> None:
    """Write the programs and weights of a model, traced with two examples."""
    inputs = publication.sample_inputs(publication.workload.test, 2)
    export_programs(module, inputs, folder, onnx_inputs=publication.input_names, onnx_outputs=publication.output_names)


def benchmark_bundle_engines(
    publication: Publication, module: nn.Module, folder: Path, include_native: bool
) -> list[EngineResult]:
    """Time all engines on examples of the test split.

    AOTInductor may be timed beside them but is never part of a bundle, because it is native code.
    """
    inputs = publication.sample_inputs(publication.workload.test, MAX_COMPARED_EXAMPLES)

    @torch.inference_mode()
    def compute_exact(*batch: Tensor) -> tuple[Tensor, ...]:
        return tuple(module(*batch))

    makers: dict[str, Callable[[], Engine]] = {name: partial(make, folder) for name, make in ENGINES.items()}
    with tempfile.TemporaryDirectory() as scratch:
        if include_native:
            makers["aotinductor"] = partial(compile_aotinductor, module, inputs, Path(scratch))
        return benchmark_engines(makers, compute_exact, inputs, publication.compare_outputs)


def build_manifest(
    name: str | None,
    record: Record,
    publication: Publication,
    module: nn.Module,
    metrics: Metrics,
    engine: EngineEntry,
) -> Manifest:
    """Build the manifest of a model that was trained without a plan and never adapted."""
    workload, kept_lap = publication.workload, find_kept_lap(record)
    return Manifest(
        name=name or workload.name,
        workload=record.config.name,
        classes=[str(name) for name in workload.classes],
        **publication.describe_inputs(),
        outputs=publication.describe_outputs(module),
        examples={name: len(getattr(workload, name)) for name in ("train", *HELD_OUT_SPLITS)},
        metrics=metrics,
        config=asdict(record.config),
        parameters=sum(value.numel() for value in workload.model().parameters()),
        target=record.target,
        lower_is_better=record.lower_is_better,
        published=datetime.now(UTC).isoformat(timespec="seconds"),
        status=record.status,
        seen=kept_lap.seen if kept_lap else 0,
        machine=describe_hardware(torch.device("cpu")),
        versions={
            "equipoise": find_version(),
            **{name: version(name) for name in PACKAGES},
            "python": platform.python_version(),
        },
        engine=engine,
    )


def add_adaptation(manifest: Manifest, recipe: AdaptationRecipe, learned: Sequence[LearnedCondition]) -> Manifest:
    """Return the manifest of an adapted model: with the workload that it learned first, and the drift that it knows."""
    config = recipe.original_config(manifest.decode_config())
    return replace(
        manifest,
        workload=config.name,
        config=asdict(config),
        remedy=asdict(recipe.combined_condition),
        conditions=condition_entries(learned),
    )
