"""Adapt a model to a drift: fine-tune it from the drift's verdict and labelled images, and publish a new bundle.

The cause decides what is done. After a change of light or camera the model is fine-tuned on its own training images
under that change and on the labelled ones. After a change of class shares the prior of its classifier is shifted. A
lens that is out of focus must be cleaned or focused by a person, unless --accept-blur says that it stays so. A gate
compares the old and the new model on clean and on drifted images that neither has learned from, and refuses a model
that is no better. Only a model that passes is written to --out, and --link is then pointed to it.

With --forget NAME no verdict is needed: a copy of the bundle is published that no longer knows one of the conditions
that it has learned. The model's answers stay the same, and requests under that condition are a drift again. A copy
published with --grow-reference has a reference that has grown by requests that raised no alarm.

An interrupted command publishes nothing; run again, it starts over.

Exit status: 0 adapted, forgotten, or nothing to do; 1 training failed, or the service did not answer; 2 wrong options
or files, or a condition that the model knows already; 3 refused by the gate; 4 a person must act first; 143 stopped.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from equipoise.bundle.bundle import PictureBundle, load_image_bundle, load_picture_bundle
from equipoise.command_line import command
from equipoise.drift.adaptation.gate_report import GATE_FILE, GateReport
from equipoise.drift.adaptation.workload import AdaptationRecipe, DriftCondition, load_base_workload
from equipoise.drift.diagnosis.verdict import Verdict
from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable
from equipoise.storage.atomic import atomic_folder
from equipoise.storage.user_paths import require_local_paths
from jobs.cli.option_parser import parse_options
from jobs.cli.output_folder import require_new_folder
from jobs.cli.paths import OptionalLocalPath, require_capture_folder, validate_locations
from jobs.publishing.adaptation import (
    MIN_LABELS,
    build_recipe,
    describe_condition,
    find_advice,
    prepare_recipe,
    train_adapted_model,
)
from jobs.publishing.bundle_link import point_link, read_previous_target, require_existing_link, require_link
from jobs.publishing.drift_verdict import fetch_verdict, read_verdict, require_matching_bundle
from jobs.publishing.forget_condition import publish_without_condition, require_learned_condition
from jobs.publishing.grow_reference import plan_growth, publish_with_larger_reference
from jobs.publishing.known_conditions import learn_condition, load_learned_conditions, require_new_condition
from jobs.publishing.labelled_captures import LabelSources, count_labels
from jobs.publishing.promotion_gate import passes_gate
from jobs.publishing.publish import PublishRequest, publish_bundle


@dataclass(frozen=True, kw_only=True)
class AdaptOptions:
    __doc__ = __doc__

    bundle: str | None = None
    """folder or URL of the bundle whose requests have drifted; the one that --link points to if not given"""
    out: OptionalLocalPath = None
    """folder for the new bundle; must not exist"""
    service: str | None = None
    """URL of the running service, such as http://127.0.0.1:8000, to read the verdict from its /drift"""
    verdict: OptionalLocalPath = None
    """file with the verdict instead: a reply of /drift, or the output of equipoise check --json"""
    capture_dir: str | None = None
    """folder or URL of the captured requests, of which the labelled ones are used"""
    labels: OptionalLocalPath = None
    """folder of the labels that the captured requests were given on the page of equipoise label: boxes, or classes"""
    data: str | None = None
    """folder of the workload's files, or its URL; the one the model was trained with if not given"""
    link: OptionalLocalPath = None
    """symbolic link to the bundle that the service watches; pointed to the new bundle if the gate lets it pass"""
    key: OptionalLocalPath = None
    """file with the service's API key"""
    report: OptionalLocalPath = None
    """file for what the gate compared, as JSON, whether the model passes or not"""
    epochs: int = 12
    """passes over the images that the model is fine-tuned on"""
    workers: int = 1
    """processes that share every global batch"""
    accept_blur: bool = False
    """adapt to a blur that is there to stay, such as that of another camera, instead of advising to clean the lens"""
    dry_run: bool = False
    """print what would be done and change nothing"""
    roll_back: bool = False
    """point --link back to the previous bundle and do nothing else"""
    grow_reference: bool = False
    """publish a copy of the bundle to --out whose reference has grown by the requests in --capture-dir that were
    answered without an alarm, and do nothing else; the verdict must be ok"""
    forget: str | None = None
    """name of a learned condition; publish a copy of the bundle without it to --out and do nothing else"""


@command(on_stop="stopped: nothing was published")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parse_options(AdaptOptions, arguments)
    require_local_paths(
        {
            **{"--out": options.out, "--verdict": options.verdict, "--link": options.link, "--key": options.key},
            **{"--labels": options.labels, "--report": options.report},
        }
    )
    validate_locations(options.data)
    if options.forget is not None:
        return forget_condition(options, options.forget)
    if options.grow_reference:
        return grow_reference(options)
    return roll_back_link(options) if options.roll_back else adapt_bundle(options)


def forget_condition(options: AdaptOptions, name: str) -> int:
    """Publish a copy of the bundle without a learned condition and return the exit status."""
    others = {"--verdict": options.verdict, "--service": options.service, "--roll-back": options.roll_back}
    require_no_others("--forget", others | {"--grow-reference": options.grow_reference})
    validate_options(options)
    model = load_image_bundle(str(options.bundle or options.link), "adapt a model")
    require_learned_condition(model, name)
    if options.dry_run:
        print(make_printable(f"dry run: a copy of {model.folder} without {name} would be published"))
        return 0
    return publish_copy(
        options, f"without {name}", lambda out: publish_without_condition(model, name, options.data, out)
    )


def require_no_others(option: str, others: Mapping[str, object]) -> None:
    """Refuse an option that is given together with others."""
    if given := [name for name, value in others.items() if value]:
        raise EquipoiseError(
            "option-conflict", f"cannot combine {option} with {' and '.join(given)}", "give one of them at a time"
        )


def grow_reference(options: AdaptOptions) -> int:
    """Publish a copy of the bundle with a larger reference and return the exit status."""
    require_no_others("--grow-reference", {"--roll-back": options.roll_back})
    validate_options(options)
    if options.capture_dir is None:
        raise EquipoiseError(
            "option-missing", "cannot grow the reference: --capture-dir is missing", "give that of the service"
        )
    if not options.dry_run:
        require_out(options)
    model = load_image_bundle(str(options.bundle or options.link), "adapt a model")
    verdict = load_verdict(options, model)
    require_matching_bundle(verdict, model)
    growth = plan_growth(model, verdict, options.capture_dir)
    counts = ", ".join(f"{count:,} of {name}" for name, count in growth.counts.items())
    print(make_printable(f"requests that join the reference: {counts}"))
    if options.dry_run:
        print("dry run: nothing was changed")
        return 0
    return publish_copy(
        options,
        "with a larger reference",
        lambda out: publish_with_larger_reference(model, growth, options.data, out),
    )


def publish_copy(options: AdaptOptions, description: str, publish: Callable[[Path], str | None]) -> int:
    """Publish a copy of the bundle, print what it is, point the link to it, and return the exit status."""
    out = require_out(options)
    if warning := publish(out):
        print(f"note: {warning}", file=sys.stderr)
    print(make_printable(f"{out}: published {description}"))
    if options.link:
        point_link(options.link, out)
    return 0


def roll_back_link(options: AdaptOptions) -> int:
    """Point the link back to the previous bundle and return the exit status."""
    if options.link is None:
        raise EquipoiseError(
            "option-missing", "cannot roll back: --link is missing", "give the link that the service watches"
        )
    target = read_previous_target(options.link)
    if options.dry_run:
        print(f"dry run: {options.link} would point to {target}")
    else:
        point_link(options.link, target)
    return 0


def adapt_bundle(options: AdaptOptions) -> int:
    """Read the verdict, decide what to do about it, do it, and return the exit status."""
    validate_options(options)
    model = load_picture_bundle(str(options.bundle or options.link), "adapt a model")
    verdict = load_verdict(options, model)
    if verdict.state != "drift":
        print(make_printable(f"nothing to adapt to: {verdict.why or verdict.state}"))
        return 0
    require_matching_bundle(verdict, model)
    sources = LabelSources(capture_dir=options.capture_dir, labels=options.labels)
    label_count = count_labels(sources, model, verdict)
    print(make_printable(f"{verdict.why or verdict.cause}; {label_count} labelled images"))
    if advice := find_advice(verdict.cause, label_count, options.accept_blur):
        print(f"{verdict.cause}: {advice}")
        return 4
    recipe = build_recipe(model, verdict, options.data)
    if recipe.drift == DriftCondition() and label_count < MIN_LABELS:
        raise EquipoiseError(
            "adaptation-impossible",
            f"cannot adapt: the verdict gives no size for {verdict.cause}",
            f"label {MIN_LABELS} images or more",
        )
    require_new_condition(model.manifest, recipe, verdict)
    print(make_printable(describe_condition(recipe.drift, label_count)))
    if options.dry_run:
        print("dry run: nothing was changed")
        return 0
    require_out(options)
    return run_adaptation(options, model, recipe, verdict)


def validate_options(options: AdaptOptions) -> None:
    """Refuse options that would fail only after training."""
    for name, value in (("epochs", options.epochs), ("workers", options.workers)):
        if value < 1:
            raise EquipoiseError("option-range", f"--{name} must be at least 1, got {value}")
    validate_locations(options.bundle, options.capture_dir)
    if options.bundle is None and options.link is None:
        raise EquipoiseError(
            "option-missing",
            "no model to adapt",
            "give --bundle with its bundle, or --link with the link the service watches",
        )
    if options.out is not None:
        require_new_folder(options.out.absolute())
    if options.link is not None:
        require_link(options.link)
        if options.bundle is None:
            require_existing_link(options.link)
    if options.capture_dir is not None:
        require_capture_folder(options.capture_dir)


def require_out(options: AdaptOptions) -> Path:
    """Return the folder for the new bundle; refuse options without one."""
    if options.out is None:
        raise EquipoiseError("option-missing", "cannot publish: --out is missing", "give the folder for the new bundle")
    return options.out


def load_verdict(options: AdaptOptions, model: PictureBundle) -> Verdict:
    """Load the verdict from the service or from a file, whichever the options name."""
    if options.service is not None and options.verdict is None:
        return fetch_verdict(options.service, options.key, model)
    if options.verdict is not None and options.service is None:
        return read_verdict(options.verdict)
    raise EquipoiseError(
        "option-missing" if options.service is None else "option-conflict",
        "cannot read a verdict",
        "give either --service with the service's URL or --verdict with a file",
    )


def run_adaptation(options: AdaptOptions, model: PictureBundle, recipe: AdaptationRecipe, verdict: Verdict) -> int:
    """Fine-tune the model, put it through the gate, publish it and return the exit status."""
    with tempfile.TemporaryDirectory(prefix="equipoise-adapt-") as folder_name:
        work_folder = Path(folder_name)
        sources = LabelSources(capture_dir=options.capture_dir, labels=options.labels)
        recipe = prepare_recipe(sources, model, recipe, verdict, work_folder)
        if not train_adapted_model(model, recipe, work_folder, options.epochs, options.workers):
            print("stopped: nothing was published", file=sys.stderr)
            return 143
        base = load_base_workload(recipe, model.manifest.decode_config())
        learned = learn_condition(model, recipe, verdict, options.capture_dir, base)
        published = publish_bundle(
            PublishRequest(run=work_folder / "run", out=work_folder / "bundle", name=model.name, native=False),
            recipe,
            [*load_learned_conditions(model), *([learned] if learned else [])],
        )
        if published.reference_warning:
            print(f"note: {published.reference_warning}", file=sys.stderr)
        passes = passes_gate(model, load_picture_bundle(work_folder / "bundle", "adapt a model"), recipe, work_folder)
        if options.report:
            GateReport.read(work_folder / GATE_FILE).write(options.report)
        if not passes:
            return 3
        with atomic_folder(Path(str(options.out)).absolute()) as folder:
            for file in (work_folder / "bundle").iterdir():
                (folder / file.name).write_bytes(file.read_bytes())
    print(f"{options.out}: published")
    if options.link:
        point_link(options.link, Path(str(options.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
