"""Publish a copy of a bundle that no longer knows one of the conditions that it has learned.

All answers stay the same. What changes is what requests are compared with: under the forgotten condition they are a
drift again.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from equipoise.bundle.condition_entry import ConditionEntry
from equipoise.bundle.kinds.image_bundle import ImageBundle
from equipoise.bundle.manifest import Manifest
from equipoise.drift.adaptation.workload import DriftCondition
from equipoise.drift.charts.conditions import PUBLISHED_CONDITION
from equipoise.errors import EquipoiseError
from equipoise.type_aliases import JsonObject
from jobs.publishing.bundle_copy import publish_copy
from jobs.publishing.known_conditions import load_learned_conditions, read_remedy


def require_learned_condition(model: ImageBundle, name: str) -> None:
    """Refuse to forget a condition that the bundle has not learned."""
    if name == PUBLISHED_CONDITION:
        raise EquipoiseError(
            "option-choice",
            f"cannot forget {PUBLISHED_CONDITION!r}: it is the condition of the reference that the bundle came with",
        )
    known = [entry.name for entry in model.manifest.conditions if entry.name != PUBLISHED_CONDITION]
    if not known:
        raise EquipoiseError(
            "option-choice",
            f"cannot forget {name!r}: {model.folder} knows no other condition than {PUBLISHED_CONDITION!r}, and "
            "forgetting the only condition would leave nothing to compare requests with",
        )
    if name not in known:
        raise EquipoiseError(
            "option-choice",
            f"cannot forget {name!r}: {model.folder} has not learned it",
            f"choose one of: {'; '.join(known)}",
        )


def publish_without_condition(model: ImageBundle, name: str, data: str | None, out: Path) -> str | None:
    """Publish a copy of a bundle without a learned condition; return a warning on its reference, if there is one.

    `data` is where the workload's files lie now, and None where they lay in training.
    """
    require_learned_condition(model, name)
    learned = [condition for condition in load_learned_conditions(model) if condition.name != name]
    return publish_copy(model, remove_condition(model.manifest, name), learned, data, out)


def remove_condition(manifest: Manifest, name: str) -> Manifest:
    """Return a manifest without a condition; a model last adapted to it counts as adapted to the one before."""
    [forgotten] = [entry for entry in manifest.conditions if entry.name == name]
    remaining = tuple(entry for entry in manifest.conditions if entry.name != name)
    return replace(manifest, conditions=remaining, remedy=build_remedy(manifest, forgotten, remaining))


def build_remedy(
    manifest: Manifest, forgotten: ConditionEntry, remaining: Sequence[ConditionEntry]
) -> JsonObject | None:
    """Return the remedy of a manifest without a condition: its class shares stay; None if nothing is left of it."""
    remedy = read_remedy(manifest)
    if remedy.changes == DriftCondition.from_json(forgotten.changes).changes:
        changes = DriftCondition.from_json(remaining[-1].changes).changes if remaining else ()
        remedy = replace(remedy, changes=changes)
    return None if remedy == DriftCondition() else asdict(remedy)
