"""Publish a copy of a bundle whose requests are compared with other conditions or a larger reference.

Weights and programs stay as they are, and with them all answers. The reference is measured again on the training data.
The evaluation in the manifest stays that of the first publication.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.bundle.folder import MANIFEST_FILE, MODEL_CARD_FILE, REFERENCE_FILE, write_manifest
from equipoise.bundle.kinds.image_bundle import ImageBundle
from equipoise.bundle.manifest import Manifest
from equipoise.drift.adaptation.workload import DriftCondition, apply_condition
from equipoise.drift.reference.profile import ARRAY_PREFIX
from equipoise.errors import EquipoiseError
from equipoise.planning.document import PlanDocument
from equipoise.storage.atomic import atomic_folder
from equipoise.storage.user_paths import make_absolute
from equipoise.workloads import ImageWorkload, load_workload
from equipoise.workloads.image_workload import require_image_workload
from jobs.publishing.known_conditions import LearnedCondition, condition_arrays, read_remedy
from jobs.publishing.model_card import render_model_card
from jobs.publishing.reference_arrays import (
    build_drift_arrays,
    build_reference_arrays,
    find_false_alarm_rate,
    find_false_alarm_split,
    find_reference_warning,
    predict_split,
)


def publish_copy(
    model: ImageBundle, manifest: Manifest, learned: Sequence[LearnedCondition], data: str | None, out: Path
) -> str | None:
    """Publish a copy of a bundle that knows these conditions; return a warning on its reference, if there is one.

    `manifest` is that of the copy, without its time. `data` is where the workload's files lie now, and None where they
    lay in training.
    """
    arrays = rebuild_reference_arrays(model, load_reference_workload(model, data), learned)
    is_monitored = any(key.startswith(ARRAY_PREFIX) for key in arrays)
    warning = find_reference_warning(arrays) if is_monitored else None
    notes = [*filter(None, (warning, find_false_alarm_rate(arrays)))]
    manifest = replace(manifest, published=datetime.now(UTC).isoformat(timespec="seconds"))
    document = manifest.plan and PlanDocument.from_json(manifest.plan, f"cannot read the plan of {model.folder}")
    with atomic_folder(out.absolute()) as folder:
        for file_name in model.manifest.files.keys() - {REFERENCE_FILE, MODEL_CARD_FILE, MANIFEST_FILE}:
            shutil.copyfile(model.folder / file_name, folder / file_name)
        np.savez_compressed(folder / REFERENCE_FILE, **arrays, **condition_arrays(learned))
        card = render_model_card(manifest, document.plan if document else None, notes)
        (folder / MODEL_CARD_FILE).write_text(card, encoding="utf-8")
        write_manifest(folder, manifest)
    return warning


def load_reference_workload(model: ImageBundle, data: str | None) -> ImageWorkload:
    """Load the workload that a model learned first, its reference with the class shares that the model expects now."""
    config = model.manifest.decode_config()
    config = replace(config, data=make_absolute(data or config.data), init_from=None)
    workload = require_image_workload(load_workload(config), "rebuild the reference")
    weights = read_remedy(model.manifest).weights
    shape = tuple(workload.reference.inputs[0].shape)
    if [str(name) for name in workload.classes] != model.classes or shape != tuple(model.shape):
        raise EquipoiseError(
            "workload-invalid",
            f"cannot measure {model.folder} on {config.data}: its classes or the shape of its images are others",
            "give the data that the model was trained with as --data",
        )
    if weights is None:
        return workload
    shares = DriftCondition(weights=weights)
    return replace(
        workload,
        reference=apply_condition(workload.reference, shares),
        false_alarm_split=apply_condition(workload.validation, shares),
    )


def rebuild_reference_arrays(
    model: ImageBundle, workload: ImageWorkload, learned: Sequence[LearnedCondition]
) -> dict[str, Any]:
    """Build the arrays of reference.npz anew, without the images of conditions; a drift profile only if there is one.

    The temperature stays that of the bundle, so that its scores do too.
    """
    outputs = {
        "reference": predict_split(model.run_engine, workload.reference),
        "false alarms": predict_split(model.run_engine, find_false_alarm_split(workload)),
    }
    arrays = build_reference_arrays(workload, outputs["reference"])
    if any(key.startswith(ARRAY_PREFIX) for key in model.load_reference_arrays()):
        arrays |= build_drift_arrays(model.run_engine, workload, outputs, model.temperature, learned)
    return arrays
