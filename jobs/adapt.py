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
from dataclasses import dataclass
from pathlib import Path

import tyro

from equipoise.bundle import bundle, manifest
from equipoise.drift.adaptation import workload as remedied
from equipoise.drift.adaptation.workload import Regime, Remedy
from equipoise.storage import atomic as store
from jobs.cli.paths import require_place, require_plain, unusable
from jobs.publishing import drift_verdict as verdicts
from jobs.publishing.adaptation import chosen, counted, made, planned, prepared
from jobs.publishing.bundle_link import before, pointed, require_link
from jobs.publishing.drift_verdict import Verdict, require_fitting
from jobs.publishing.promotion_gate import gate
from jobs.publishing.publish import PublishRequest, publish

ADVICE = {
    "blur": "clean or focus the lens: what is out of focus is lost, and learning on blurred pictures costs sharp ones",
    "new class": "label the pictures that look like nothing before (GET /capture), and train with a class for them",
    "features": "no change of light or camera explains it: label 30 pictures or more, and give them by --capture",
}
FEWEST_LABELS = 30  # without a cause that says what changed


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
    labels = counted(asked.capture, model, found)
    print(f"{found.why or found.cause}; {labels} labelled pictures")
    if found.cause in ADVICE and not (found.cause == "features" and labels >= FEWEST_LABELS):
        print(f"{found.cause}: {ADVICE[found.cause]}")
        return 4
    remedy = chosen(model, found, asked.data)
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
    if (out.parent / manifest.FACTS).exists():
        raise ValueError(f"--out {out} would lie in the bundle {out.parent}, which it would spoil: choose another")


def said(asked: Asked, model: bundle.Bundle) -> Verdict:
    """The verdict: of the service, or of a file."""
    if asked.service is not None and asked.verdict is None:
        return verdicts.fetched(asked.service, asked.key, model)
    if asked.verdict is not None and asked.service is None:
        return verdicts.read(asked.verdict)
    raise ValueError("give either --service with the service's address or --verdict with a file")


def brought_back(asked: Asked, model: bundle.Bundle, remedy: Remedy, found: Verdict) -> int:
    """Learn on, be judged, and be published."""
    with tempfile.TemporaryDirectory(prefix="equipoise-adapt-") as name:
        place = Path(name)
        remedy = prepared(asked.capture, model, remedy, found, place)
        if not made(model, remedy, place, asked.passes, asked.workers):
            print("stopped: nothing was published", file=sys.stderr)
            return 143
        publish(
            PublishRequest(run=place / "run", out=place / "bundle", name=model.name, native=False),
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


if __name__ == "__main__":
    sys.exit(main())
