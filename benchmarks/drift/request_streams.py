"""Streams of labelled requests to one model that may be adapted: straight to the detector, or served over HTTP."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from msgspec import structs
from torch import Tensor

from equipoise.bundle.bundle import load_image_bundle
from equipoise.bundle.kinds.image_bundle import ImageBundle
from equipoise.captures.capture import CapturedRequest
from equipoise.captures.store import CaptureStore
from equipoise.captures.traffic import TrafficSample
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.drift.reference.reference_size import DEFAULT_REQUESTS_PER_FALSE_ALARM
from jobs.adapt import main as adapt
from jobs.cluster.processes import find_free_ports, wait_until
from jobs.demo.traffic import SimulatedClients
from jobs.publishing.adaptation import load_profile
from tests.support.ray_cluster import Cluster

STEP_IMAGES, LABEL_COUNT, FIRST_SECOND = 16, 100, 1_700_000_000.0
REPLICA_COUNT = 2


class RequestStream(Protocol):
    """Requests to a model, the verdict on them, and the adaptation of the model."""

    bundle: ImageBundle

    def send(self, images: Tensor, labels: Tensor) -> int | None:
        """Send images and return after how many of them the first alarm came; None without one."""

    def verdict(self) -> StreamVerdict:
        """Return the verdict on the requests."""

    def adapt(self, out: Path, *options: str) -> int:
        """Label some of the last requests, adapt the model and go on with the new one; return the exit status."""


class DirectStream:
    """Requests straight to the detector, in steps, each a second later than the last."""

    def __init__(self, bundle: ImageBundle, folder: Path) -> None:
        self.folder, self.seconds = folder, FIRST_SECOND
        self.start(bundle)

    def start(self, bundle: ImageBundle) -> None:
        """Go on with another bundle, whose detector has seen nothing yet."""
        self.bundle = bundle
        self.detector = StreamDetector.start(load_profile(bundle), DEFAULT_REQUESTS_PER_FALSE_ALARM)

    def send(self, images: Tensor, labels: Tensor) -> int | None:
        """Send images and return after how many of them the first alarm came; None without one."""
        delay, baseline = None, self.detector.profile.baseline
        for start in range(0, len(images), STEP_IMAGES):
            step = images[start : start + STEP_IMAGES]
            logits, features = (output.numpy() for output in self.bundle.run_engine(step))
            self.seconds += 1
            sums = baseline.sum_features(baseline.extract_features(step.numpy(), logits, features))
            if self.detector.add_sums(sums, self.seconds) and delay is None:
                delay = start + len(step)
        self.last_images, self.last_labels = images, labels
        return delay

    def verdict(self) -> StreamVerdict:
        """Return the verdict on the requests."""
        verdict = compute_stream_verdict(self.detector)
        return structs.replace(verdict, model=self.bundle.name, version=self.bundle.manifest.version)

    def adapt(self, out: Path, *options: str) -> int:
        """Keep the images that were sent last as captures, label some, and adapt the model from them."""
        captures, verdict_file = self.folder / "captures", self.folder / "verdict.json"
        shutil.rmtree(captures, ignore_errors=True)
        self.keep_captures(captures)
        verdict_file.write_text(json.dumps(self.verdict().to_json()))
        files = {"--bundle": self.bundle.folder, "--verdict": verdict_file, "--capture-dir": captures, "--out": out}
        status: int = adapt([*(str(part) for option in files.items() for part in option), *options])
        if status == 0:
            self.start(load_image_bundle(str(out), "measure drift"))
        return status

    def keep_captures(self, folder: Path) -> None:
        """Keep images as a service does: some for labelling, which get labels, and a uniform sample."""
        model, alarm = self.bundle, self.detector.alarm
        store, traffic = CaptureStore(str(folder), 2 * LABEL_COUNT), TrafficSample(str(folder), model.manifest.version)
        scores = dict.fromkeys(model.classes, 1 / len(model.classes))
        fields = {"model": model.name, "version": model.manifest.version, "label": model.classes[0], "pool": "drift"}
        for index, image in enumerate(self.last_images):
            request = CapturedRequest(picture=image, scores=scores, source=str(index), is_uniform=True, **fields)
            traffic.offer(request, alarm.unix_seconds if alarm else 0.0)
            store.offer(request)
        for capture in store.list_captures(limit=LABEL_COUNT):
            label = model.classes[int(self.last_labels[int(capture.source or 0)])]
            store.label_capture(capture.id, label, model.classes)


class ServedStream:
    """Requests over HTTP to a service that keeps captures and watches the link to its bundle."""

    def __init__(self, bundle: ImageBundle, folder: Path, cluster: Cluster, port: int) -> None:
        self.bundle, self.folder, self.cluster = bundle, folder, cluster
        self.link, self.captures, self.clients = folder / "served", folder / "captures", SimulatedClients(port)

    def send(self, images: Tensor, labels: Tensor) -> int | None:
        """Send images and return after how many of them the first alarm came; None without one."""
        images_before, alarms_before = self.verdict().images, len(self.list_alarms())
        names = [self.bundle.classes[int(label)] for label in labels]
        self.clients.label_by_pixels |= {
            image.numpy().tobytes(): name for image, name in zip(images, names, strict=True)
        }
        self.clients.count_correct_images(images, names)
        self.verdict()
        alarms = self.list_alarms()[alarms_before:]
        return int(alarms[0]["images"]) - images_before if alarms else None

    def verdict(self) -> StreamVerdict:
        """Return the verdict once it covers every request that was answered."""

        def read_complete_verdict() -> StreamVerdict | None:
            verdict = StreamVerdict.from_json(self.clients.request_service("GET", "/drift"))
            answered = self.clients.answers_by_version[self.bundle.manifest.version]
            return verdict if verdict.version == self.bundle.manifest.version and verdict.images >= answered else None

        verdict: StreamVerdict = wait_until(read_complete_verdict, 60, "a verdict on every request")
        return verdict

    def list_alarms(self) -> list[dict[str, object]]:
        """Return the alarms in the service's history."""
        events = self.clients.request_service("GET", "/drift/history")["events"]
        return [event for event in events if event["event"] == "alarm"]

    def adapt(self, out: Path, *options: str) -> int:
        """Label captured requests, run the command, and wait for the service to load the new bundle."""
        if self.clients.label_captures(LABEL_COUNT) < LABEL_COUNT:
            raise RuntimeError(f"the service captured fewer than {LABEL_COUNT} requests since the alarm")
        files = {"--service": f"http://127.0.0.1:{self.clients.port}", "--capture-dir": self.captures}
        files |= {"--link": self.link, "--out": out}
        arguments = [*(str(part) for option in files.items() for part in option), *options]
        result = self.cluster.run(sys.executable, "-m", "jobs.adapt", *arguments, timeout=1200)
        print(result.stdout + result.stderr, flush=True)
        if result.returncode == 0:
            self.bundle = load_image_bundle(str(out), "measure drift")
            wait_until(self.is_swapped, 60, "the swap of all replicas")
        return result.returncode

    def is_swapped(self) -> bool:
        """Return whether replicas, which the kernel chooses at random, all answer with the current bundle."""
        versions = {self.clients.served_version() for _ in range(8 * REPLICA_COUNT)}
        return versions == {self.bundle.manifest.version}


@contextmanager
def serve_stream(bundle: ImageBundle, folder: Path, cluster: Cluster) -> Iterator[ServedStream]:
    """Serve a bundle through a link on several replicas for the length of the block."""
    (port,) = find_free_ports(1)
    stream = ServedStream(bundle, folder, cluster, port)
    stream.link.symlink_to(bundle.folder)
    arguments = {
        "bundle": str(stream.link),
        "port": port,
        "reload_seconds": 1,
        "report_seconds": 0.1,
        "replicas": REPLICA_COUNT,
        "state_dir": str(folder / "state"),
        "capture_dir": str(stream.captures),
        "max_captures": 4 * LABEL_COUNT,
    }
    application = {"name": "photographs", "route_prefix": "/", "import_path": "services.app:build", "args": arguments}
    cluster.deploy({"proxy_location": "Disabled", "applications": [application]})
    try:
        wait_until(stream.clients.is_ready, 120, "the service to start")
        yield stream
    finally:
        cluster.shut_down_serve()
