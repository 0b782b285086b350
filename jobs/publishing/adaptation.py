"""Learn on after a drift: what is to be done about it, and the run that does it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from equipoise.bundle import bundle
from equipoise.captures.store import Captures
from equipoise.config import Trial
from equipoise.drift.adaptation import fit_corruptions as refined
from equipoise.drift.adaptation import label_prior as priors
from equipoise.drift.adaptation import workload as remedied
from equipoise.drift.adaptation.workload import Change, Regime, Remedy
from equipoise.drift.reference.profile import Known, known
from equipoise.formatting import number
from equipoise.hardware import machine
from equipoise.runs.record import Record
from equipoise.storage import atomic as store
from equipoise.training.finetune import begun, head_of, kept
from equipoise.workloads import workload
from jobs.publishing.drift_verdict import Verdict
from jobs.ray_train.run import train

HELD_OUT = 0.3  # of the labelled pictures judge and are not learned from
SHOWN = 3  # classes whose shares changed most


def chosen(model: bundle.Bundle, found: Verdict, data: str | None) -> Remedy:
    """Choose what is to be done, on top of what was done before; `data` is where the workload's files lie now."""
    trial, before = original(model)
    changes = tuple(Change(one.cause, one.detail, one.value) for one in found.effects)
    return Remedy(
        workload=trial.workload,
        data=str(Path(data or trial.data).absolute()),
        drift=Regime(changes, shares(model, found) if found.cause == "label shift" else None),
        before=before,
    )


def original(model: bundle.Bundle) -> tuple[Trial, Regime]:
    """Return how the model learned first, and what it was adapted to since."""
    try:
        before = Regime.of(model.facts["remedy"]) if "remedy" in model.facts else Regime()
        _ = [one.kind for one in before.changes]
        return Trial(**model.facts["trial"]), before
    except (KeyError, TypeError, ValueError) as error:
        why = f"{model.folder} does not say how its model was made, or as another version does ({error!r})"
        raise ValueError(f"{why}: publish it again") from None


def shares(model: bundle.Bundle, found: Verdict) -> dict[str, float]:
    """Estimate, by class, how much oftener it comes than in the reference."""
    called = np.array([found.classes.get(name, 0) for name in model.classes], np.float64)
    return dict(zip(model.classes, priors.weights(known_of(model), called).tolist(), strict=True))


def known_of(model: bundle.Bundle) -> Known:
    """Return what the bundle knows of its reference."""
    _, features = model.run(torch.zeros(1, *model.shape, dtype=torch.uint8))
    return known(model.reference(), len(model.classes), features.shape[1])


def counted(capture: str | None, model: bundle.Bundle, found: Verdict) -> int:
    """Count the labelled pictures among those kept since the drift began, of classes that the model knows."""
    if capture is None:
        return 0
    kept = Captures(capture).listed(most=None)
    return sum(one["label_given"] in model.classes and one["at"] >= found.began for one in kept)


def planned(drift: Regime, labels: int) -> str:
    """Say in words what will be done."""
    if drift.weights:
        most = sorted(drift.weights.items(), key=lambda one: -abs(np.log(one[1])))[:SHOWN]
        return "expects classes anew: " + ", ".join(f"{name} {weight:.2g} times as often" for name, weight in most)
    words = [
        f"{one.cause} {one.detail} {number(one.value)} {one.kind.unit}".replace("  ", " ") for one in drift.changes
    ]
    light = f"the training pictures under {' and '.join(words)}" if words else "the training pictures"
    low, high = remedied.SPREAD
    return f"learns on with {light}, from {low:.0%} to {high:.0%} of it, and {labels} labels"


def prepared(capture: str | None, model: bundle.Bundle, remedy: Remedy, found: Verdict, place: Path) -> Remedy:
    """Put the remedy and its labelled pictures into a folder, with its changes fitted to them if there are enough."""
    if capture and counted(capture, model, found):
        kept = Captures(capture).exported(place / remedied.LABELLED, model.classes, found.began)
        held = sum(kept.values())
        remedy = replace(remedy, train=held - round(HELD_OUT * held))
    base = remedied.base(remedy, model.facts["trial"])
    few, labels = remedied.labelled(place / remedied.LABELLED, base)
    if len(labels) >= refined.FEWEST and remedy.drift.changes:
        lately = remedied.changed(remedied.whole(base.validation), remedy.before.changes)
        fit = refined.Fit(lately, base.validation.labels.numpy(), few, labels.numpy())
        remedy = replace(remedy, drift=Regime(tuple(refined.refined(remedy.drift.changes, fit))))
        print(planned(remedy.drift, len(labels)))
    remedy.write(place)
    return remedy


def made(model: bundle.Bundle, remedy: Remedy, place: Path, passes: int, workers: int) -> bool:
    """Leave a run in the folder whose model is the remedy's, and return False if it was stopped."""
    trial = tuning(model, place, passes, workers)
    if remedy.drift.weights is None:
        return train(trial, place / "run") is not None
    net = workload(trial).model()
    begun(net, kept(model.folder), model.classes, reuse=True)
    head = net.get_submodule(head_of(net, len(model.classes)))
    priors.expected(head, model.temperature, np.array([remedy.drift.weights[name] for name in model.classes]))
    (place / "run").mkdir()
    weights = {name: value.contiguous() for name, value in net.state_dict().items()}
    save_file(weights, place / "run" / "model.safetensors")
    here = machine(torch.device("cpu"))
    record = Record(trial=trial, machine=here, laps=[], ended="cap", target=1, examples_to_target=None, test=None)
    store.write_json(place / "run" / "record.json", record.to_json())
    return True


def tuning(model: bundle.Bundle, place: Path, passes: int, workers: int) -> Trial:
    """Build the trial that learns on: with the plan's batch, if the model was made by one."""
    facts = {name: value for name, value in model.facts["trial"].items() if name != "accumulate"}
    before = Trial(**facts)
    plan = (model.facts.get("plan") or {}).get("plan") or {}
    batch = int(plan.get("batch", before.batch))
    trial = replace(
        before,
        workload=remedied.NAME,
        data=str(place),
        init=str(model.folder.absolute()),
        workers=workers,
        batch=batch,
        schedule="cosine",
        target=None,
        body_lr=0.1,
        freeze=0,
    )
    length = len(workload(trial).train)
    return replace(trial, examples=passes * length, evaluate=passes * length)
