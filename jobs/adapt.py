"""Bring back a model that works after a drift: from its verdict, and pictures that were labelled, to a new bundle.

What is done follows the cause. Light and camera: the model learns on with its own training pictures under that change,
and with the labelled ones. Classes in other shares: it expects them so. A lens out of focus: clean it. A gate compares
old and new on clean and on drifted pictures that neither has learned from, and refuses what is no better.

Exit status: 0 adapted, or nothing to do; 2 asked for what cannot be; 3 refused by the gate; 4 a person must act first.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import tyro
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
from jobs import publish
from jobs.captures import require_place
from jobs.cli.paths import require_plain, unusable
from jobs.publishing import drift_verdict as verdicts
from jobs.publishing.bundle_link import before, pointed, require_link
from jobs.publishing.drift_verdict import Verdict, require_fitting
from jobs.publishing.promotion_gate import gate
from jobs.train import train

ADVICE = {
    "blur": "clean or focus the lens: what is out of focus is lost, and learning on blurred pictures costs sharp ones",
    "new class": "label the pictures that look like nothing before (GET /capture), and train with a class for them",
    "features": "no change of light or camera explains it: label 30 pictures or more, and give them by --capture",
}
FEWEST_LABELS = 30  # without a cause that says what changed
HELD_OUT = 0.3  # of the labelled pictures judge and are not learned from
SHOWN = 3  # classes whose shares changed most


@dataclass(frozen=True, kw_only=True)
class Asked:
    __doc__ = __doc__

    bundle: str | None = None
    """the model that drifted away from its requests: a folder or URL; what --link points to if not given"""
    out: Path | None = None
    """folder of the new bundle; must not exist"""
    service: str | None = None
    """address of the running service, such as http://127.0.0.1:8000: the verdict is its /drift"""
    verdict: Path | None = None
    """a file instead: what /drift said, or jobs.check with --json"""
    capture: str | None = None
    """folder or URL of requests that were kept; the labelled ones among them are used"""
    data: str | None = None
    """folder of the workload's files; where the model was trained if not given"""
    link: Path | None = None
    """a link to the bundle that the service watches: it is pointed to the new one if the gate lets it pass"""
    key: Path | None = None
    """file with the service's API key"""
    passes: int = 12
    """over the pictures that it learns on with"""
    workers: int = 1
    dry_run: bool = False
    """say what would be done, and change nothing"""
    roll_back: bool = False
    """point --link to the bundle before again"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status says what came of it."""
    asked = tyro.cli(Asked, args=arguments)
    try:
        return back(asked) if asked.roll_back else adapt(asked)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {unusable(error)}", file=sys.stderr)
        return 2


def back(asked: Asked) -> int:
    """To the bundle before."""
    if asked.link is None:
        raise ValueError("--roll-back takes --link: the link that the service watches")
    target = before(asked.link)
    if asked.dry_run:
        print(f"dry run: {asked.link} would point to {target}")
    else:
        pointed(asked.link, target)
    return 0


def adapt(asked: Asked) -> int:
    """The whole way."""
    require_places(asked)
    model = bundle.load(str(asked.bundle or asked.link))
    found = said(asked, model)
    if found.state != "drift":
        print(f"nothing to adapt to: {found.why or found.state}")
        return 0
    require_fitting(found, model)
    labels = counted(asked, model, found)
    print(f"{found.why or found.cause}; {labels} labelled pictures")
    if found.cause in ADVICE and not (found.cause == "features" and labels >= FEWEST_LABELS):
        print(f"{found.cause}: {ADVICE[found.cause]}")
        return 4
    remedy = chosen(asked, model, found)
    if remedy.drift == Regime() and labels < FEWEST_LABELS:
        raise ValueError(f"the verdict does not say how much of {found.cause}: label {FEWEST_LABELS} pictures or more")
    print(planned(remedy.drift, labels))
    if asked.dry_run:
        print("dry run: nothing was changed")
        return 0
    if asked.out is None:
        raise ValueError("--out is not given: say where the new bundle shall lie")
    return brought_back(asked, model, remedy, found)


def require_places(asked: Asked) -> None:
    """Refuse what would fail once all is learned."""
    for name, value in (("passes", asked.passes), ("workers", asked.workers)):
        if value < 1:
            raise ValueError(f"--{name} must be 1 or more, got {value}")
    require_plain(asked.bundle, asked.out, asked.verdict, asked.capture, asked.data, asked.link, asked.key)
    if asked.bundle is None and asked.link is None:
        raise ValueError("give --bundle with the model, or --link with the link that the service watches")
    if asked.out is not None:
        require_new(asked.out.absolute())
    if asked.link is not None:
        require_link(asked.link)
    if asked.capture is not None:
        require_place(asked.capture)


def require_new(out: Path) -> None:
    """Refuse a folder that is there, cannot be made, or would lie in a bundle."""
    if out.exists() or out.is_symlink():
        raise ValueError(f"--out {out} is there already: choose another")
    above = next(folder for folder in out.parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise ValueError(f"--out {out} cannot be made: nothing can be written to {above}")
    if (out.parent / bundle.FACTS).exists():
        raise ValueError(f"--out {out} would lie in the bundle {out.parent}, which it would spoil: choose another")


def chosen(asked: Asked, model: bundle.Bundle, found: Verdict) -> Remedy:
    """What is to be done, on top of what was done before."""
    trial, before = original(model)
    changes = tuple(Change(one.cause, one.detail, one.value) for one in found.effects)
    return Remedy(
        workload=trial.workload,
        data=str(Path(asked.data or trial.data).absolute()),
        drift=Regime(changes, shares(model, found) if found.cause == "label shift" else None),
        before=before,
    )


def original(model: bundle.Bundle) -> tuple[Trial, Regime]:
    """How the model learned first, and what it was adapted to since."""
    try:
        before = Regime.of(model.facts["remedy"]) if "remedy" in model.facts else Regime()
        _ = [one.kind for one in before.changes]
        return Trial(**model.facts["trial"]), before
    except (KeyError, TypeError, ValueError) as error:
        why = f"{model.folder} does not say how its model was made, or as another version does ({error!r})"
        raise ValueError(f"{why}: publish it again") from None


def shares(model: bundle.Bundle, found: Verdict) -> dict[str, float]:
    """By class, how much oftener it comes than in the reference."""
    called = np.array([found.classes.get(name, 0) for name in model.classes], np.float64)
    return dict(zip(model.classes, priors.weights(known_of(model), called).tolist(), strict=True))


def known_of(model: bundle.Bundle) -> Known:
    """What the bundle knows of its reference."""
    _, features = model.run(torch.zeros(1, *model.shape, dtype=torch.uint8))
    return known(model.reference(), len(model.classes), features.shape[1])


def said(asked: Asked, model: bundle.Bundle) -> Verdict:
    """The verdict: of the service, or of a file."""
    if asked.service is not None and asked.verdict is None:
        return verdicts.fetched(asked.service, asked.key, model)
    if asked.verdict is not None and asked.service is None:
        return verdicts.read(asked.verdict)
    raise ValueError("give either --service with the service's address or --verdict with a file")


def counted(asked: Asked, model: bundle.Bundle, found: Verdict) -> int:
    """Labelled pictures among those kept since the drift began, of classes that the model knows."""
    if asked.capture is None:
        return 0
    kept = Captures(asked.capture).listed(most=None)
    return sum(one["label_given"] in model.classes and one["at"] >= found.began for one in kept)


def planned(drift: Regime, labels: int) -> str:
    """What will be done, in words."""
    if drift.weights:
        most = sorted(drift.weights.items(), key=lambda one: -abs(np.log(one[1])))[:SHOWN]
        return "expects classes anew: " + ", ".join(f"{name} {weight:.2g} times as often" for name, weight in most)
    words = [
        f"{one.cause} {one.detail} {number(one.value)} {one.kind.unit}".replace("  ", " ") for one in drift.changes
    ]
    light = f"the training pictures under {' and '.join(words)}" if words else "the training pictures"
    low, high = remedied.SPREAD
    return f"learns on with {light}, from {low:.0%} to {high:.0%} of it, and {labels} labels"


def brought_back(asked: Asked, model: bundle.Bundle, remedy: Remedy, found: Verdict) -> int:
    """Learn on, be judged, and be published."""
    with tempfile.TemporaryDirectory(prefix="equipoise-adapt-") as name:
        place = Path(name)
        remedy = prepared(asked, model, remedy, found, place)
        if not made(asked, model, remedy, place):
            print("stopped: nothing was published", file=sys.stderr)
            return 143
        publish.publish(
            publish.Asked(run=place / "run", out=place / "bundle", name=model.name, native=False),
            remedied.facts(remedy, store.read_json(place / "run" / "record.json")["trial"]),
        )
        if not gate(model, bundle.load(place / "bundle"), remedy, place):
            return 3
        with store.folder(Path(str(asked.out)).absolute()) as folder:
            for file in (place / "bundle").iterdir():
                (folder / file.name).write_bytes(file.read_bytes())
    print(f"{asked.out}: published")
    if asked.link:
        pointed(asked.link, Path(str(asked.out)))
    return 0


def prepared(asked: Asked, model: bundle.Bundle, remedy: Remedy, found: Verdict, place: Path) -> Remedy:
    """The remedy with its labelled pictures in a folder, and its changes fitted to them if there are enough."""
    if asked.capture and counted(asked, model, found):
        kept = Captures(asked.capture).exported(place / remedied.LABELLED, model.classes, found.began)
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


def made(asked: Asked, model: bundle.Bundle, remedy: Remedy, place: Path) -> bool:
    """A run in the folder, whose model is the remedy's; False if it was stopped."""
    trial = tuning(asked, model, place)
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


def tuning(asked: Asked, model: bundle.Bundle, place: Path) -> Trial:
    """The trial that learns on: with the plan's batch, if the model was made by one."""
    facts = {name: value for name, value in model.facts["trial"].items() if name != "accumulate"}
    before = Trial(**facts)
    plan = (model.facts.get("plan") or {}).get("plan") or {}
    batch = int(plan.get("batch", before.batch))
    trial = replace(
        before,
        workload=remedied.NAME,
        data=str(place),
        init=str(model.folder.absolute()),
        workers=asked.workers,
        batch=batch,
        schedule="cosine",
        target=None,
        body_lr=0.1,
        freeze=0,
    )
    length = len(workload(trial).train)
    return replace(trial, examples=asked.passes * length, evaluate=asked.passes * length)


if __name__ == "__main__":
    sys.exit(main())
