"""Bring back a model that works after a drift: from its verdict, and pictures that were labelled, to a new bundle.

What is done follows the cause. Light and camera: the model learns on with its own training pictures under that change,
and with the labelled ones. A lens out of focus: clean it. A gate compares old and new on clean and on drifted pictures
that neither has learned from, and refuses what is no better.

Exit status: 0 adapted, or nothing to do; 2 asked for what cannot be; 3 refused by the gate; 4 a person must act first.
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import torch
import tyro

from equipoise import bundle, store
from equipoise.captures import Captures
from equipoise.drift import refined, remedied
from equipoise.drift.remedied import Change
from equipoise.trial import Trial
from equipoise.workloads import Split, workload
from jobs import publish
from jobs.train import train

LEARNED = ("colour temperature", "tint", "exposure", "contrast", "reflection", "noise", "compression", "geometry")
ADVICE = {
    "blur": "clean or focus the lens: what is out of focus is lost, and learning on blurred pictures costs sharp ones",
    "new class": "label the pictures that look like nothing before (GET /capture), and train with a class for them",
    "label shift": "classes come in other shares, and the model tells each as well as ever: nothing has to be learned",
    "features": "no change of light or camera explains it: label 30 pictures or more, and give them by --capture",
}
PASSES = 12  # over the training pictures of a remedy
FEWEST_LABELS = 30  # without a cause that says what changed
CLEAN_LOSS = 0.005  # accuracy that may be lost on clean pictures
REGAINED = 0.5  # share of the accuracy lost by the drift, that must come back
HELD_OUT = 0.3  # of the labelled pictures judge and are not learned from
SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    __doc__ = __doc__

    bundle: str
    """the model that drifted away from its requests: a folder or URL"""
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
    key: str | None = None
    """file with the service's API key"""
    workers: int = 1
    dry_run: bool = False
    """say what would be done, and change nothing"""
    roll_back: bool = False
    """point --link to the bundle before again"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status says what came of it."""
    asked = tyro.cli(Asked, args=arguments)
    try:
        return rolled_back(asked) if asked.roll_back else adapt(asked)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def adapt(asked: Asked) -> int:
    """The whole way."""
    model, found = bundle.load(asked.bundle), said(asked)
    if found.get("state") != "drift":
        print(f"nothing to adapt to: {found.get('why', found.get('state'))}")
        return 0
    cause, labels = found["cause"], counted(asked)
    print(f"{found['why']}; {labels} labelled pictures")
    if cause in ADVICE and not (cause == "features" and labels >= FEWEST_LABELS):
        print(f"{cause}: {ADVICE[cause]}")
        return 4
    changes = [Change(one["cause"], one["detail"], one["value"]) for one in found.get("effects", [])]
    print(planned(changes, labels))
    if asked.dry_run:
        print("dry run: nothing was changed")
        return 0
    if asked.out is None:
        raise ValueError("--out is not given: say where the new bundle shall lie")
    return tuned(asked, model, changes)


def said(asked: Asked) -> dict[str, Any]:
    """The verdict: of the service, or of a file."""
    if (asked.service is None) == (asked.verdict is None):
        raise ValueError("give either --service with the service's address or --verdict with a file")
    found = store.read_json(asked.verdict) if asked.verdict else fetched(asked, "/drift")
    if not isinstance(found, dict) or found.get("state") not in ("ok", "drift", "unknown"):
        raise ValueError("what was given is no verdict: it is what /drift or jobs.check with --json says")
    return found


def fetched(asked: Asked, path: str) -> Any:
    """What the service says."""
    headers = {"authorization": f"Bearer {Path(asked.key).read_text().split()[0]}"} if asked.key else {}
    request = Request(f"{str(asked.service).rstrip('/')}{path}", headers=headers)  # noqa: S310 - the address is a user's
    with urlopen(request, timeout=SECONDS) as reply:  # noqa: S310
        return json.load(reply)


def counted(asked: Asked) -> int:
    """Labelled pictures among those kept."""
    if asked.capture is None:
        return 0
    return sum(one["label_given"] is not None for one in Captures(asked.capture).listed(most=None))


def planned(changes: list[Change], labels: int) -> str:
    """What will be done, in words."""
    words = [f"{one.cause} {one.detail} {one.value:.3g} {one.kind.unit}".replace("  ", " ") for one in changes]
    light = f"the training pictures under {' and '.join(words)}" if words else "the training pictures"
    return (
        f"learns on with {light}, from {remedied.SPREAD[0]:.0%} to {remedied.SPREAD[1]:.0%} of it, and {labels} labels"
    )


def tuned(asked: Asked, model: bundle.Bundle, changes: list[Change]) -> int:
    """Learn on, be judged, and be published."""
    facts = model.facts["trial"]
    with tempfile.TemporaryDirectory(prefix="equipoise-adapt-") as name:
        place = Path(name)
        recipe(asked, place, facts, changes)
        changes = fitted(place, facts)
        print(planned(changes, counted(asked)))
        trial = tuning(asked, model, place)
        record = train(trial, place / "run")
        if record is None:
            print("stopped: nothing was published", file=sys.stderr)
            return 143
        publish.publish(publish.Asked(run=place / "run", out=place / "bundle", name=model.name, native=False))
        new = bundle.load(place / "bundle")
        passed = gate(model, new, place, facts)
        if not passed:
            return 3
        with store.folder(Path(str(asked.out)).absolute()) as folder:
            for file in (place / "bundle").iterdir():
                (folder / file.name).write_bytes(file.read_bytes())
    print(f"{asked.out}: published")
    if asked.link:
        pointed(asked.link, Path(str(asked.out)))
    return 0


def recipe(asked: Asked, place: Path, facts: dict[str, Any], changes: list[Change]) -> None:
    """What the workload of the remedy is made from."""
    found = {"workload": facts["workload"], "data": str(Path(asked.data or facts["data"]).absolute())}
    if asked.capture and counted(asked):
        held = sum(Captures(asked.capture).exported(place / remedied.LABELLED).values())
        found["train"] = held - round(HELD_OUT * held)
    store.write_json(place / remedied.RECIPE, found | {"changes": [asdict(one) for one in changes]})


def fitted(place: Path, facts: dict[str, Any]) -> list[Change]:
    """The changes of a recipe, fitted to its labelled pictures if there are enough."""
    found = remedied.read(place)
    changes = [Change(**one) for one in found["changes"]]
    base = workload(Trial(**{**facts, "data": found["data"], "init": None}))
    few, labels = remedied.labelled(place / remedied.LABELLED, base)
    if len(labels) < refined.FEWEST or not changes:
        return changes
    plain = base.validation
    fit = refined.Fit(remedied.whole(plain), plain.labels.numpy(), few, labels.numpy())
    changes = refined.refined(changes, fit)
    store.write_json(place / remedied.RECIPE, found | {"changes": [asdict(one) for one in changes]})
    return changes


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
    return replace(trial, examples=PASSES * length, evaluate=PASSES * length)


def gate(old: bundle.Bundle, new: bundle.Bundle, place: Path, facts: dict[str, Any]) -> bool:
    """Whether the new model is better where the old one fails, and no worse where it did not."""
    found = remedied.read(place)
    changes = [Change(**one) for one in found["changes"]]
    base = workload(Trial(**{**facts, "data": found["data"], "init": None}))
    few, labels = remedied.labelled(place / remedied.LABELLED, base)
    kept = found.get("train", len(labels))
    splits = {"clean": base.test, "drifted": remedied.drifted(base.test, changes) if changes else None}
    splits["labelled"] = Split(few[kept:], labels[kept:]) if len(labels) > kept else None
    rows = {name: (right(old, one), right(new, one)) for name, one in splits.items() if one is not None}
    for name, (before, after) in rows.items():
        print(f"{name:10} {before:7.2%} -> {after:7.2%}")
    clean = rows.pop("clean")
    lost = {name: clean[0] - before for name, (before, _) in rows.items()}
    regained = {name: (after - before) / max(lost[name], 1e-9) for name, (before, after) in rows.items()}
    if clean[0] - clean[1] > CLEAN_LOSS:
        print(f"refused: {clean[0] - clean[1]:.2%} lost on clean pictures, where {CLEAN_LOSS:.2%} may be")
        return False
    if any(share < REGAINED and lost[name] > CLEAN_LOSS for name, share in regained.items()):
        print(f"refused: less than {REGAINED:.0%} of what the drift took is back")
        return False
    return True


def right(model: bundle.Bundle, split: Split) -> float:
    """Accuracy."""
    pictures = remedied.whole(split)
    called = torch.cat([model.run(some)[0].argmax(1) for some in pictures.split(64)])
    return float((called == split.labels).double().mean())


def pointed(link: Path, target: Path) -> None:
    """A link to another bundle, in one step; where it pointed before is remembered beside it."""
    if link.exists() and not link.is_symlink():
        raise ValueError(f"--link {link} is no link: let the service watch a link to the bundle")
    if link.is_symlink():
        store.write_json(link.with_name(f".{link.name}.before"), str(link.readlink()))
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.symlink_to(target.absolute())
    fresh.replace(link)
    print(f"{link} -> {target}")


def rolled_back(asked: Asked) -> int:
    """To the bundle before."""
    if asked.link is None:
        raise ValueError("--roll-back takes --link: the link that the service watches")
    before = asked.link.with_name(f".{asked.link.name}.before")
    if not before.is_file():
        raise ValueError(f"nothing is known of a bundle before {asked.link}: point the link by hand")
    pointed(asked.link, Path(store.read_json(before)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
