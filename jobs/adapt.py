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

from equipoise.bundle.bundle import Bundle, load_bundle
from equipoise.bundle.manifest import MANIFEST_FILE
from equipoise.drift.adaptation.workload import AdaptationRecipe, DriftCondition, build_bundle_facts
from equipoise.storage.atomic import atomic_folder, read_json
from jobs.cli.paths import describe_os_error, require_capture_folder, validate_locations
from jobs.publishing.adaptation import (
    build_recipe,
    count_labels,
    describe_condition,
    prepare_recipe,
    train_adapted_model,
)
from jobs.publishing.bundle_link import point_link, read_previous_target, require_link
from jobs.publishing.drift_verdict import Verdict, fetch_verdict, read_verdict, require_matching_bundle
from jobs.publishing.promotion_gate import passes_gate
from jobs.publishing.publish import PublishRequest, publish_bundle

ADVICE_BY_CAUSE = {
    "blur": "clean or focus the lens: what is out of focus is lost, and learning on blurred pictures costs sharp ones",
    "new class": "label the pictures that look like nothing before (GET /capture), and train with a class for them",
    "features": "no change of light or camera explains it: label 30 pictures or more, and give them by --capture-dir",
}
MIN_LABELS = 30  # without a cause that says what changed


@dataclass(frozen=True, kw_only=True)
class AdaptOptions:
    __doc__ = __doc__

    bundle: str | None = None
    """the model that drifted away from its requests: a folder or URL; what --link points to if not given"""
    out: Path | None = None
    """folder of the new bundle; must not exist"""
    service: str | None = None
    """address of the running service, such as http://127.0.0.1:8000: the verdict is its /drift"""
    verdict: Path | None = None
    """a file instead: what /drift said, or jobs.check with --json"""
    capture_dir: str | None = None
    """folder or URL of requests that were kept; the labelled ones among them are used"""
    data: str | None = None
    """folder of the workload's files; where the model was trained if not given"""
    link: Path | None = None
    """a link to the bundle that the service watches: it is pointed to the new one if the gate lets it pass"""
    key: Path | None = None
    """file with the service's API key"""
    epochs: int = 12
    """over the pictures that it learns on with"""
    workers: int = 1
    dry_run: bool = False
    """say what would be done, and change nothing"""
    roll_back: bool = False
    """point --link to the bundle before again"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status says what came of it."""
    asked = tyro.cli(AdaptOptions, args=arguments)
    try:
        return roll_back_link(asked) if asked.roll_back else adapt_bundle(asked)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {describe_os_error(error)}", file=sys.stderr)
        return 2


def roll_back_link(options: AdaptOptions) -> int:
    """To the bundle before."""
    if options.link is None:
        raise ValueError("--roll-back takes --link: the link that the service watches")
    target = read_previous_target(options.link)
    if options.dry_run:
        print(f"dry run: {options.link} would point to {target}")
    else:
        point_link(options.link, target)
    return 0


def adapt_bundle(options: AdaptOptions) -> int:
    """The whole way."""
    validate_options(options)
    model = load_bundle(str(options.bundle or options.link))
    found = load_verdict(options, model)
    if found.state != "drift":
        print(f"nothing to adapt to: {found.why or found.state}")
        return 0
    require_matching_bundle(found, model)
    labels = count_labels(options.capture_dir, model, found)
    print(f"{found.why or found.cause}; {labels} labelled pictures")
    if found.cause in ADVICE_BY_CAUSE and not (found.cause == "features" and labels >= MIN_LABELS):
        print(f"{found.cause}: {ADVICE_BY_CAUSE[found.cause]}")
        return 4
    remedy = build_recipe(model, found, options.data)
    if remedy.drift == DriftCondition() and labels < MIN_LABELS:
        raise ValueError(f"the verdict does not say how much of {found.cause}: label {MIN_LABELS} pictures or more")
    print(describe_condition(remedy.drift, labels))
    if options.dry_run:
        print("dry run: nothing was changed")
        return 0
    if options.out is None:
        raise ValueError("--out is not given: say where the new bundle shall lie")
    return run_adaptation(options, model, remedy, found)


def validate_options(options: AdaptOptions) -> None:
    """Refuse what would fail once all is learned."""
    for name, value in (("passes", options.epochs), ("workers", options.workers)):
        if value < 1:
            raise ValueError(f"--{name} must be 1 or more, got {value}")
    validate_locations(
        options.bundle, options.out, options.verdict, options.capture_dir, options.data, options.link, options.key
    )
    if options.bundle is None and options.link is None:
        raise ValueError("give --bundle with the model, or --link with the link that the service watches")
    if options.out is not None:
        require_new_folder(options.out.absolute())
    if options.link is not None:
        require_link(options.link)
    if options.capture_dir is not None:
        require_capture_folder(options.capture_dir)


def require_new_folder(out: Path) -> None:
    """Refuse a folder that is there, cannot be made, or would lie in a bundle."""
    if out.exists() or out.is_symlink():
        raise ValueError(f"--out {out} is there already: choose another")
    above = next(folder for folder in out.parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise ValueError(f"--out {out} cannot be made: nothing can be written to {above}")
    if (out.parent / MANIFEST_FILE).exists():
        raise ValueError(f"--out {out} would lie in the bundle {out.parent}, which it would spoil: choose another")


def load_verdict(options: AdaptOptions, model: Bundle) -> Verdict:
    """The verdict: of the service, or of a file."""
    if options.service is not None and options.verdict is None:
        return fetch_verdict(options.service, options.key, model)
    if options.verdict is not None and options.service is None:
        return read_verdict(options.verdict)
    raise ValueError("give either --service with the service's address or --verdict with a file")


def run_adaptation(options: AdaptOptions, model: Bundle, recipe: AdaptationRecipe, verdict: Verdict) -> int:
    """Learn on, be judged, and be published."""
    with tempfile.TemporaryDirectory(prefix="equipoise-adapt-") as name:
        place = Path(name)
        recipe = prepare_recipe(options.capture_dir, model, recipe, verdict, place)
        if not train_adapted_model(model, recipe, place, options.epochs, options.workers):
            print("stopped: nothing was published", file=sys.stderr)
            return 143
        publish_bundle(
            PublishRequest(run=place / "run", out=place / "bundle", name=model.name, native=False),
            build_bundle_facts(recipe, read_json(place / "run" / "record.json")["config"]),
        )
        if not passes_gate(model, load_bundle(place / "bundle"), recipe, place):
            return 3
        with atomic_folder(Path(str(options.out)).absolute()) as folder:
            for file in (place / "bundle").iterdir():
                (folder / file.name).write_bytes(file.read_bytes())
    print(f"{options.out}: published")
    if options.link:
        point_link(options.link, Path(str(options.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
