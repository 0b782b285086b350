"""How much of a detector's precision boxes drawn by hand bring back: python -m benchmarks.adapted_boxes [--seeds 0 1 2]

Detectors of rendered shelves meet a warm light, and a warm light that the shelf reflects. Each is adapted from the
verdict and the captured requests, once with 60 labelled ones, whose boxes are off by two pixels as a person's are, and
once with none. Precision is COCO's mean average precision on 400 new pictures, which are then requests to the adapted
detector: under the new light, the first one, and both in runs of 20.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equipoise.boxes.box import LabelledBox
from equipoise.boxes.mean_average_precision import MeanAveragePrecision
from equipoise.bundle.bundle import load_picture_bundle
from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.captures.capture import CapturedRequest
from equipoise.captures.store import CaptureStore
from equipoise.captures.traffic import TrafficSample
from equipoise.config import TrainConfig
from equipoise.drift.adaptation.workload import load_base_workload
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.drift.profiling.box_profile import SearchedImages, extract_box_features
from equipoise.drift.reference.reference_size import DEFAULT_REQUESTS_PER_FALSE_ALARM
from equipoise.hardware import describe_hardware
from equipoise.images.png import encode_png
from equipoise.labels.picture_labels import PictureLabels, clip_box
from equipoise.labels.store import LabelStore
from equipoise.training.loop import Training
from equipoise.workloads import Split
from equipoise.workloads.detection.shelf_renderer import render_shelves
from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene
from jobs.publishing.adaptation import build_adaptation_config, build_recipe, load_profile, prepare_recipe
from jobs.publishing.kinds.boxes_publication import find_in_split, read_found_boxes
from jobs.publishing.known_conditions import learn_condition
from jobs.publishing.labelled_captures import LabelSources
from jobs.publishing.promotion_gate import measure_precision, passes_gate
from jobs.publishing.publish import PublishRequest, publish_bundle
from tests.support.bundles import write_run_folder

LIGHTS = {"warm": Scene(kelvin=3000), "warm and reflected": Scene(kelvin=3000, veil=0.1, highlight=0.3)}
LABEL_COUNT, BOX_NOISE_PIXELS = 60, 2.0
PHASE_REQUESTS, RUN_PICTURES, STEP_PICTURES, PIXELS = 400, 20, 16, 96
FIRST_SECOND, REQUEST_SEED = 1_700_000_000.0, 77
EXAMPLES, BATCH_SIZE = 4800, 16


@dataclass
class BoxAdaptation:
    """What one adaptation took and gave."""

    seed: int
    light: str
    labels: int
    cause: str | None = None
    changes: list[str] = field(default_factory=list)
    """the changes that it trained with"""
    clean: tuple[float, float] = (0.0, 0.0)
    """mean average precision under the first light, before and after"""
    drifted: tuple[float, float] = (0.0, 0.0)
    """under the new light"""
    clean_50: tuple[float, float] = (0.0, 0.0)
    drifted_50: tuple[float, float] = (0.0, 0.0)
    passed: bool = False
    """whether the gate let it pass"""
    alarms: dict[str, int | None] = field(default_factory=dict)
    """requests until an alarm in each phase afterwards; None without one"""

    @property
    def regained(self) -> float:
        """Share of the lost mean average precision that came back."""
        return (self.drifted[1] - self.drifted[0]) / (self.clean[0] - self.drifted[0])


def main() -> None:
    """Adapt detectors of several seeds to each light, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adapted_boxes", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--lights", choices=LIGHTS, nargs="+", default=[*LIGHTS])
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument(
        "--bundles", type=Path, help="folder in which the first bundles are kept, as shelf0, shelf1, ..."
    )
    options = parser.parse_args()
    print(describe_hardware(torch.device("cpu")))
    for seed in options.seeds:
        with TemporaryDirectory(prefix="adapted-boxes-") as temporary:
            folder = Path(temporary)
            bundle = train_and_publish((options.bundles or folder).absolute(), seed)
            for light in options.lights:
                for label_count in (LABEL_COUNT, 0):
                    start = time.process_time()
                    result = adapt_to_light(
                        bundle, folder / light / str(label_count), light, label_count, options.epochs
                    )
                    line = asdict(result) | {"seed": seed, "regained": result.regained}
                    print(json.dumps(line | {"cpu_seconds": time.process_time() - start}), flush=True)


def train_and_publish(folder: Path, seed: int) -> BoxesBundle:
    """Train a detector of shelves and publish it, unless the folder has it already."""
    out = folder / f"shelf{seed}"
    if not out.exists():
        config = TrainConfig(
            workload="shelf", batch_size=BATCH_SIZE, schedule="cosine", max_examples=EXAMPLES, seed=seed, target=2.0
        )
        train_in_process(config, folder / f"run{seed}")
        publish_bundle(PublishRequest(run=folder / f"run{seed}", out=out, name="shelf", native=False))
    return load_detector(out)


def load_detector(folder: Path) -> BoxesBundle:
    """Load the bundle of a detector."""
    bundle = load_picture_bundle(folder, "adapt a model")
    if not isinstance(bundle, BoxesBundle):
        raise TypeError(f"{folder} is no detector")
    return bundle


def train_in_process(config: TrainConfig, out: Path) -> None:
    """Train in this process, and write the run as jobs.train does."""
    training = Training(config)
    for _ in training.laps():
        pass
    write_run_folder(training, out)


def adapt_to_light(bundle: BoxesBundle, folder: Path, light: str, label_count: int, epochs: int) -> BoxAdaptation:
    """Send requests under a light, adapt the detector as jobs.adapt does, and measure it."""
    folder.mkdir(parents=True)
    result = BoxAdaptation(0, light, label_count)
    clean, drifted = (render_requests(0, PHASE_REQUESTS), render_requests(1, PHASE_REQUESTS, LIGHTS[light]))
    stream = RequestStream(bundle)
    stream.send(clean.inputs)
    requests = render_requests(2, PHASE_REQUESTS, LIGHTS[light])
    stream.send(requests.inputs)
    verdict = stream.read_verdict()
    result.cause = verdict.cause
    sources = keep_requests(bundle, requests, folder, stream.alarm_seconds)
    label_captures(sources, requests, bundle, label_count)
    recipe = prepare_recipe(
        sources if label_count else LabelSources(capture_dir=sources.capture_dir),
        bundle,
        build_recipe(bundle, verdict, None),
        verdict,
        folder,
    )
    result.changes = [f"{change.cause} {change.detail} {change.value:.3g}" for change in recipe.drift.changes]
    train_in_process(build_adaptation_config(bundle, folder, epochs, 1), folder / "run")
    base = load_base_workload(recipe, bundle.manifest.decode_config())
    learned = learn_condition(bundle, recipe, verdict, sources.capture_dir, base)
    request = PublishRequest(
        run=folder / "run", out=folder / "bundle", name="shelf", native=False, drift=label_count > 0
    )
    publish_bundle(request, recipe, [learned] if learned else [])
    adapted = load_detector(folder / "bundle")
    result.passed = passes_gate(bundle, adapted, recipe, folder)
    precisions = [[measure_precision(model, part) for model in (bundle, adapted)] for part in (clean, drifted)]
    result.clean, result.drifted = (list_values(pair, "overall") for pair in precisions)
    result.clean_50, result.drifted_50 = (list_values(pair, "at_50") for pair in precisions)
    if label_count:
        result.alarms = count_alarms(adapted, clean.inputs, drifted.inputs)
    return result


def list_values(precisions: Sequence[MeanAveragePrecision], name: str) -> tuple[float, float]:
    """Return one value of the precision before and after."""
    before, after = (float(getattr(precision, name)) for precision in precisions)
    return before, after


def render_requests(phase: int, count: int, scene: Scene | None = None) -> Split:
    """Render pictures that no other phase has, with their boxes."""
    indices = np.arange(phase * count, (phase + 1) * count)
    return Split(*render_shelves(MACHINE_PRODUCTS, indices, REQUEST_SEED, PIXELS, scene))


class RequestStream:
    """Requests straight to the drift charts of a detector, in steps, each a second later than the last."""

    def __init__(self, bundle: BoxesBundle) -> None:
        self.bundle, self.seconds = bundle, FIRST_SECOND
        self.detector = StreamDetector.start(load_profile(bundle), DEFAULT_REQUESTS_PER_FALSE_ALARM)

    def send(self, pictures: Tensor) -> int | None:
        """Send pictures and return after how many of them the first alarm came; None without one."""
        delay = None
        for start in range(0, len(pictures), STEP_PICTURES):
            step = pictures[start : start + STEP_PICTURES]
            found = SearchedImages(step, read_found_boxes(self.bundle.run_engine(step)))
            self.seconds += 1
            sums = self.detector.profile.baseline.sum_features(extract_box_features(self.detector.profile, found))
            if self.detector.add_sums(sums, self.seconds) and delay is None:
                delay = start + len(step)
        return delay

    def read_verdict(self) -> StreamVerdict:
        """Return the verdict on the requests; that of a detector that saw no drift ends the benchmark."""
        verdict = compute_stream_verdict(self.detector)
        if verdict.state != "drift":
            raise RuntimeError(f"the light was not noticed: {verdict.why}")
        return verdict

    @property
    def alarm_seconds(self) -> float:
        """Unix time of the alarm; 0 without one."""
        return self.detector.alarm.unix_seconds if self.detector.alarm else 0.0


def keep_requests(bundle: BoxesBundle, requests: Split, folder: Path, alarm_seconds: float) -> LabelSources:
    """Keep requests as a service does: some for labelling, and a uniform sample."""
    captures = str(folder / "captures")
    store, traffic = CaptureStore(captures, 4 * LABEL_COUNT, seed=0), TrafficSample(captures, bundle.manifest.version)
    found = find_in_split(bundle.run_engine, requests)
    rows = zip(found.scores, found.boxes, found.labels, strict=True)
    for index, (picture, row) in enumerate(zip(requests.inputs, rows, strict=True)):
        boxes = tuple(bundle.read_boxes(*(torch.from_numpy(part) for part in row)))
        scores = {name: max((box.score for box in boxes if box.label == name), default=0.0) for name in bundle.classes}
        facts = {"model": bundle.name, "version": bundle.manifest.version, "pool": "drift", "source": str(index)}
        fields: dict[str, Any] = {
            "label": max(scores, key=lambda name: scores[name]),
            "scores": scores,
            "boxes": boxes,
            **facts,
        }
        encoded = encode_png(picture.numpy())
        store.offer(CapturedRequest(picture=picture.numpy(), encoded=encoded, **fields))
        traffic.offer(CapturedRequest(picture=picture.numpy(), is_uniform=True, **fields), alarm_seconds)
    return LabelSources(capture_dir=captures, labels=folder / "labels")


def label_captures(sources: LabelSources, requests: Split, bundle: BoxesBundle, count: int) -> None:
    """Save the boxes of the most useful captures as a person draws them."""
    store, labels = CaptureStore(str(sources.capture_dir)), LabelStore(Path(str(sources.labels)))
    rng = np.random.default_rng(count)
    labels.add_classes("boxes", bundle.classes)
    for capture in store.list_captures(limit=count):
        targets = requests.targets[int(capture.source or 0)].tolist()
        drawn = [draw_box(bundle.classes[int(row[0])], row[1:5], rng) for row in targets if row[0] >= 0]
        (image,) = Path(str(sources.capture_dir)).glob(f"*{capture.id}.png")
        boxes = tuple(box for box in drawn if box)
        labels.save_labels(PictureLabels(picture=image.name, width=PIXELS, height=PIXELS, boxes=boxes), 0)


def draw_box(label: str, sides: Sequence[float], rng: np.random.Generator) -> LabelledBox | None:
    """Return a box whose sides are off by BOX_NOISE_PIXELS, inside of the picture."""
    x, y, width, height = sides
    left, top, right, bottom = np.array([x, y, x + width, y + height]) + rng.normal(0, BOX_NOISE_PIXELS, 4)
    return clip_box(LabelledBox(label, left, top, max(right - left, 2), max(bottom - top, 2)), PIXELS, PIXELS)


def count_alarms(bundle: BoxesBundle, clean: Tensor, drifted: Tensor) -> dict[str, int | None]:
    """Return after how many requests of each phase an alarm comes."""
    is_new = torch.arange(len(clean)) // RUN_PICTURES % 2 == 1
    mixed = torch.where(is_new[:, None, None, None], drifted, clean)
    stream = RequestStream(bundle)
    return {name: stream.send(part) for name, part in (("new", drifted), ("first", clean), ("both", mixed))}


if __name__ == "__main__":
    main()
