"""Streams of shelves under other lights to the drift detector of a published detector of products.

python -m benchmarks.drift.shelf_lights [--runs 10] [--bundle FOLDER]

Streams of clean pictures must raise no alarm. Each further stream is clean at first and changes then; the cause that
the verdict names at the first alarm counts, and that at the end. No picture is in two streams. Pictures take the way of
a service's requests from the program's outputs on, in steps of sixteen.
"""

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from equipoise.bundle.bundle import load_bundle
from equipoise.bundle.kinds.base_bundle import Bundle
from equipoise.config import TrainConfig
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.drift.features.box_stats import FoundBoxes
from equipoise.drift.profiling.box_profile import SearchedImages, extract_box_features
from equipoise.drift.profiling.bundle_profile import load_bundle_profile
from equipoise.drift.reference.reference_size import DEFAULT_REQUESTS_PER_FALSE_ALARM
from equipoise.hardware import describe_hardware
from equipoise.training.loop import Training
from equipoise.workloads.detection.shelf import DEFAULT_PIXELS, RENDER_SEED
from equipoise.workloads.detection.shelf_renderer import render_shelves
from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene
from tests.support.bundles import publish_run, write_run_folder

TRAIN_EXAMPLES, FIRST_INDEX, STEP_IMAGES = 9600, 100_000, 16  # the pictures of the workload come before
CLEAN_STREAMS, CLEAN_IMAGES, IMAGES_BEFORE_CHANGE, CHANGED_IMAGES = 3, 3000, 304, 480
CHANGES = {
    "light of 3,000 K": (Scene(kelvin=3000), "colour temperature"),
    "light of 4,500 K": (Scene(kelvin=4500), "colour temperature"),
    "veil of 6 % and a highlight of 0.2": (Scene(veil=0.06, highlight=0.2), "reflection"),
    "veil of 6 %": (Scene(veil=0.06), "reflection"),
    "highlight of 0.4": (Scene(highlight=0.4), "reflection"),
}


@dataclass(frozen=True)
class FirstAlarm:
    """First alarm of a stream, with the cause that the verdict names then."""

    images: int
    """images of the stream so far"""
    cause: str | None
    why: str
    last_cause: str | None
    """cause that the verdict names at the end of the stream"""


def main() -> None:
    """Watch clean streams and streams that change, and print a row for each change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="number of streams for each change")
    parser.add_argument("--bundle", type=Path, help="published detector of shelves; one is trained if not given")
    parser.add_argument("--only", help="part of the names of the changes to watch, without clean streams")
    arguments = parser.parse_args()
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as name:
        bundle = load_bundle(str(arguments.bundle or publish_shelf(Path(name))))
        for number in range(0 if arguments.only else CLEAN_STREAMS):
            alarm = watch_stream(bundle, render_stream(number * CLEAN_IMAGES, CLEAN_IMAGES))
            print(f"clean stream {number}: {CLEAN_IMAGES} pictures, {alarm or 'no alarm'}", flush=True)
        print(
            "\n| change | alarms | right cause at once | at the end | pictures until the alarm: median, most | causes |"
        )
        print("|---|--:|--:|--:|--:|---|")
        for place, (change, (scene, cause)) in enumerate(CHANGES.items(), 1):
            if arguments.only and arguments.only not in change:
                continue
            alarms = [watch_change(bundle, (10 * place + run) * CLEAN_IMAGES, scene) for run in range(arguments.runs)]
            print_change(change, cause, alarms)


def publish_shelf(folder: Path) -> Path:
    """Train the detector of shelves, publish it with its drift reference, and return the bundle."""
    training = Training(
        TrainConfig(workload="shelf", batch_size=16, max_examples=TRAIN_EXAMPLES, eval_every=TRAIN_EXAMPLES, target=2.0)
    )
    for _ in training.laps():
        pass
    return publish_run(write_run_folder(training, folder / "run"), folder / "bundle", drift=True)


def render_stream(first: int, count: int, scene: Scene | None = None) -> Tensor:
    """Render the pictures of a stream."""
    indices = np.arange(first, first + count) + FIRST_INDEX
    return render_shelves(MACHINE_PRODUCTS, indices, RENDER_SEED, DEFAULT_PIXELS, scene)[0]


def watch_change(bundle: Bundle, first: int, scene: Scene) -> FirstAlarm | None:
    """Watch a stream that changes, and return its first alarm."""
    changed = render_stream(first + IMAGES_BEFORE_CHANGE, CHANGED_IMAGES, scene)
    return watch_stream(bundle, torch.cat([render_stream(first, IMAGES_BEFORE_CHANGE), changed]))


def watch_stream(bundle: Bundle, images: Tensor) -> FirstAlarm | None:
    """Watch the images of a stream in order, and return the first alarm; None without one."""
    profile = load_bundle_profile(bundle)
    alarmed: tuple[int, StreamVerdict] | None = None
    detector = StreamDetector.start(profile, DEFAULT_REQUESTS_PER_FALSE_ALARM)
    for second, step in enumerate(images.split(STEP_IMAGES)):
        found = FoundBoxes(*(output.numpy() for output in bundle.run_engine(step.contiguous())))
        features = extract_box_features(profile, SearchedImages(step, found))
        if detector.add_sums(profile.baseline.sum_features(features), float(second)) and alarmed is None:
            alarmed = min((second + 1) * STEP_IMAGES, len(images)), compute_stream_verdict(detector)
    if alarmed is None:
        return None
    num_images, verdict = alarmed
    return FirstAlarm(num_images, verdict.cause, verdict.why, compute_stream_verdict(detector).cause)


def print_change(change: str, cause: str, alarms: list[FirstAlarm | None]) -> None:
    """Print a row on the streams with one change, and the reason behind each cause that is not right."""
    delays = [alarm.images - IMAGES_BEFORE_CHANGE for alarm in alarms if alarm]
    right, last_right = (
        sum(alarm is not None and getattr(alarm, name) == cause for alarm in alarms) for name in ("cause", "last_cause")
    )
    causes = ", ".join(f"{name} {count}" for name, count in Counter(a.cause for a in alarms if a).most_common())
    spread = f"{np.median(delays):.0f}, {max(delays)}" if delays else ""
    print(f"| {change} | {len(delays)} | {right} of {len(alarms)} | {last_right} | {spread} | {causes} |", flush=True)
    for alarm in alarms:
        if alarm and alarm.cause != cause:
            print(f"  wrong: {alarm.why}", flush=True)


if __name__ == "__main__":
    main()
