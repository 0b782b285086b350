"""Whether alarms end after an adaptation, on photographs: python -m benchmarks.drift.known_lights [--served]

A model of two classes of crops from real photographs meets clean requests, then a warm light. It is adapted by
`jobs.adapt` from the verdict, a sample of the requests since the alarm and 100 labels. After that come 1,000 requests
under the warm light, 1,000 under the first, 1,000 under both in runs of 20, and blurred ones at last. Requests go
straight to the detector, which is faster, or with --served over HTTP to two replicas.
"""

import argparse
import json
import time
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.drift.photo_crops import blur_by, draw_crops, measure_accuracy, multiply_channels, train_and_publish
from benchmarks.drift.request_streams import DirectStream, RequestStream, serve_stream
from equipoise.hardware import describe_hardware
from tests.support.ray_cluster import Cluster, start_cluster

WARM_GAINS, BLUR_PIXELS = (1.25, 1.0, 0.62), 1.6
CLEAN_REQUESTS, WARM_REQUESTS, REQUESTS_BY_PHASE, BLURRED_REQUESTS, RUN_IMAGES = 600, 1600, 1000, 160, 20
MAX_BLUR_DELAY = 100
SLOT_COUNT = 3  # of the cluster: two for replicas, one for the adaptation


def main() -> None:
    """Run the story several times and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drift.known_lights", description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--served", action="store_true", help="send requests over HTTP")
    parser.add_argument("--keep", type=Path, help="folder in which the bundles of all runs are kept")
    options = parser.parse_args()
    print(describe_hardware(torch.device("cpu")))
    stories = []
    with ExitStack() as stack:
        cluster = stack.enter_context(start_cluster(SLOT_COUNT)) if options.served else None
        for seed in range(options.first_seed, options.first_seed + options.runs):
            with TemporaryDirectory(prefix="lights-") as temporary:
                folder = (options.keep or Path(temporary)).absolute() / str(seed)
                stories.append(tell_story(folder, seed, cluster))
            print(json.dumps(asdict(stories[-1]) | {"right": stories[-1].is_right}), flush=True)
    print(f"{sum(story.is_right for story in stories)} of {len(stories)} stories right from end to end")


@dataclass
class AdaptationOutcome:
    """What happened in one run: alarms, causes and accuracies before and after the adaptation."""

    seed: int
    clean: str = ""
    """verdict after the first clean requests"""
    warm_delay: int | None = None
    """requests under the warm light until the alarm"""
    warm_cause: str | None = None
    adapted: int | None = None
    """exit status of the adaptation"""
    real_share: float = 0.0
    """share of requests among the images from which the condition was learned"""
    accuracy_before: float = 0.0
    accuracy_after: float = 0.0
    """under the warm light"""
    alarms: dict[str, int | None] = field(default_factory=dict)
    """requests until an alarm in each phase after the adaptation; None without one"""
    blur_delay: int | None = None
    blur_cause: str | None = None

    @property
    def is_right(self) -> bool:
        """Return whether every part of the story went as it should."""
        is_quiet = len(self.alarms) == 3 and not any(self.alarms.values())
        is_detected = self.warm_delay is not None and self.warm_cause == "colour temperature"
        is_blur_found = self.blur_delay is not None and self.blur_delay <= MAX_BLUR_DELAY and self.blur_cause == "blur"
        return self.clean == "ok" and is_detected and self.adapted == 0 and is_quiet and is_blur_found


def tell_story(folder: Path, seed: int, cluster: Cluster | None) -> AdaptationOutcome:
    """Train and publish a model, and tell the story with its requests, over HTTP where a cluster is given."""
    bundle = train_and_publish(folder, seed)
    stream = serve_stream(bundle, folder, cluster) if cluster else nullcontext(DirectStream(bundle, folder))
    with stream as requests:
        return send_all_phases(requests, folder, seed)


def send_all_phases(requests: RequestStream, folder: Path, seed: int) -> AdaptationOutcome:
    """Send clean requests and warm ones, adapt, send both, and blurred ones."""
    story, rng, warm = AdaptationOutcome(seed), np.random.default_rng(seed), multiply_channels(WARM_GAINS)
    requests.send(*draw_crops(rng, CLEAN_REQUESTS))
    story.clean = requests.verdict().state
    story.warm_delay = requests.send(*draw_crops(rng, WARM_REQUESTS, warm))
    story.warm_cause, old = requests.verdict().cause, requests.bundle
    if story.warm_delay is None:
        return story
    story.adapted = requests.adapt(folder / "adapted", "--epochs", "3")
    if story.adapted:
        return story
    story.real_share = requests.bundle.manifest.conditions[0].real_share if requests.bundle.manifest.conditions else 0.0
    clean, warm_requests = draw_crops(rng, REQUESTS_BY_PHASE), draw_crops(rng, REQUESTS_BY_PHASE, warm)
    story.accuracy_before, story.accuracy_after = (
        measure_accuracy(model, *warm_requests) for model in (old, requests.bundle)
    )
    is_warm = torch.arange(REQUESTS_BY_PHASE) // RUN_IMAGES % 2 == 1
    images, labels = draw_crops(rng, REQUESTS_BY_PHASE)
    mixed = torch.where(is_warm[:, None, None, None], warm(images), images), labels
    for name, phase in (("warm", warm_requests), ("clean", clean), ("mixed", mixed)):
        story.alarms[name] = requests.send(*phase)
    story.blur_delay = requests.send(*draw_crops(rng, BLURRED_REQUESTS, blur_by(BLUR_PIXELS)))
    story.blur_cause = requests.verdict().cause
    return story


if __name__ == "__main__":
    start = time.monotonic()
    main()
    print(f"{time.monotonic() - start:.0f} s")
