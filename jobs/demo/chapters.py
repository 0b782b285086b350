"""Chapters of the demo: each runs the commands that a user would give, and leaves its records."""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dashboards.demo_report import (
    describe_answers,
    describe_fine_tuning,
    describe_phase_verdicts,
    describe_plan,
    describe_recovery,
    describe_verdict,
)
from dashboards.demo_story import DemoStory, PhaseAnswers, PhaseVerdict, SwapRequests
from dashboards.page import write_page
from dashboards.plan_confirmation import describe_plan_status
from dashboards.reports import drift_page
from equipoise.bundle.bundle import load_bundle
from equipoise.bundle.folder import MANIFEST_FILE
from equipoise.bundle.manifest import Manifest
from equipoise.drift.diagnosis.verdict import ChartHistory, StreamVerdict, VerdictState
from equipoise.drift.monitor.entries import DriftEvent
from equipoise.errors import CommandFailed
from equipoise.images.thumbnails import MAX_THUMBNAILS_PER_ROW, make_thumbnail, reference_thumbnails
from equipoise.planning.document import PLAN_FILE, PlanDocument
from equipoise.storage.atomic import write_json
from equipoise.workloads.vending.renderer import Scene
from jobs.cluster.private_ray import ENVIRONMENT_BIN, PrivateRay
from jobs.cluster.processes import wait_until
from jobs.demo.traffic import SimulatedClients

EVENING_SCENE = Scene(kelvin=4000, veil=0.1, highlight=0.3)  # warmer light, and a table that reflects it
IMAGES_PER_SCENE, LABEL_COUNT = 400, 100
IMAGES_PER_RUN = 20  # under one light, where both are mixed
MAX_VERDICT_ROUNDS = 5  # of IMAGES_PER_SCENE requests each until the service has a verdict
MAX_LABEL_ROUNDS = 10  # rounds of requests until LABEL_COUNT drifted images are captured
SWEEP_ARGUMENTS = ("--workload", "digits", "--workers", "1", "2", "--budget-seconds", "40")
SOURCE_ARGUMENTS = (
    *("--workload", "vending-source", "--batch-size", "32", "--lr", "0.05", "--schedule", "cosine"),
    *("--max-examples", "16000", "--target", "0.985"),
)
VENDING_ARGUMENTS = ("--workload", "vending", "--batch-size", "32", "--lr", "0.1", "--target", "0.97")
PAUSE_SECONDS = 0.1  # between requests during fine-tuning, which shares two cores with the service


@dataclass
class DemoState:
    """State of the demo: its folder, Ray cluster, simulated clients and story so far."""

    out: Path
    private_ray: PrivateRay
    clients: SimulatedClients
    story: DemoStory = field(default_factory=DemoStory.empty)

    def run_job(self, name: str, *arguments: object, ok_statuses: tuple[int, ...] = (0,)) -> None:
        """Run a command of `jobs` to its end with its output in logs/; raise if it exits with another status."""
        module, log = name.partition("-")[0], self.out / "logs" / f"{name}.log"
        status = self.private_ray.start_command(
            sys.executable, "-m", f"jobs.{module}", *map(str, arguments), log=log
        ).wait()
        if status not in ok_statuses:
            tail = "\n".join(log.read_text(errors="replace").strip().splitlines()[-5:])
            raise CommandFailed(f"jobs.{module} exited with status {status}; see {log}, which ends:\n{tail}")

    def send_images(self, name: str, *scenes: Scene) -> None:
        """Send images to the service, and record in the story how many it answered correctly.

        Several scenes take turns, in runs of IMAGES_PER_RUN images.
        """
        failures_before, scenes = len(self.clients.failure_reasons), scenes or (Scene(),)
        correct = self.count_correct(scenes)
        self.story.sent[name] = PhaseAnswers(
            requests=IMAGES_PER_SCENE,
            right=correct,
            accuracy=correct / IMAGES_PER_SCENE,
            unanswered=len(self.clients.failure_reasons) - failures_before,
            light=asdict(scenes[0]) if len(scenes) == 1 else {},
        )

    def count_correct(self, scenes: tuple[Scene, ...]) -> int:
        """Send IMAGES_PER_SCENE images under these lights in turn, and return how many were labelled correctly."""
        run_images = IMAGES_PER_SCENE if len(scenes) == 1 else IMAGES_PER_RUN
        return self.clients.count_correct_images(
            *self.clients.render_mixed_images(IMAGES_PER_SCENE, scenes, run_images)
        )

    def send_images_and_read_verdict(self, name: str, *scenes: Scene) -> None:
        """Send images to the service, and record in the story its answers and its verdict after them."""
        images_before = self.wait_for_verdict().images
        self.send_images(name, *scenes)
        verdict = self.send_until_verdict({"ok", "drift"}, *scenes)
        history = msgspec.convert(self.clients.request_service("GET", "/drift/charts"), type=ChartHistory)
        shares = measure_condition_shares(history, images_before)
        self.story.verdicts[name] = PhaseVerdict(state=verdict.state, why=verdict.why, conditions=shares)

    def send_until_verdict(self, states: set[VerdictState], *scenes: Scene) -> StreamVerdict:
        """Return the verdict once it is one of these states; send more images while it is not.

        A service observes requests for at most 1 % of the time: a busy machine observes few of 400 images.
        """
        for _ in range(MAX_VERDICT_ROUNDS):
            verdict = self.wait_for_verdict()
            if verdict.state in states:
                return verdict
            self.count_correct(scenes or (Scene(),))
        raise CommandFailed(f"the verdict is {verdict.state}, not {' or '.join(sorted(states))}: {verdict.why}")

    def recorded_accuracy(self, name: str) -> float:
        """Return the recorded accuracy of the answers to one set of images."""
        return self.story.sent[name].accuracy

    def wait_for_verdict(self) -> StreamVerdict:
        """Wait up to 60 s for a verdict that covers all requests sent, and return it."""

        def complete_verdict() -> StreamVerdict | None:
            verdict = StreamVerdict.from_json(self.clients.request_service("GET", "/drift"))
            return verdict if verdict.images >= self.clients.answers_by_version[str(verdict.version)] else None

        verdict: StreamVerdict = wait_until(complete_verdict, 60, "a verdict")
        return verdict


def measure_condition_shares(history: ChartHistory, images_before: int) -> dict[str, float]:
    """Return the share of each known condition among the images answered since `images_before`, by name."""
    ends = np.array(history.image_numbers)
    sizes = np.diff(ends, prepend=images_before).clip(min=0) * (ends > images_before)
    total = max(int(sizes.sum()), 1)
    return {name: float(sizes @ np.array(shares)) / total for name, shares in history.conditions.items()}


def sweep_and_confirm(state: DemoState) -> list[str]:
    """Sweep for workers, batch size and learning rate, and confirm the plan with a run."""
    state.run_job("sweep", *SWEEP_ARGUMENTS, "--out", state.out / "sweep", ok_statuses=(0, 1))
    document = PlanDocument.read(state.out / "sweep" / PLAN_FILE)
    if document.plan is None:
        raise CommandFailed(f"the sweep found no plan: {'; '.join(document.warnings)}")
    return [describe_plan(document.plan), f"why: {document.plan.why}", describe_plan_status(document)]


def fine_tune_and_publish(state: DemoState) -> list[str]:
    """Train on other products, fine-tune on the vending machine's, and publish the model."""
    source, run, bundle = state.out / "source", state.out / "vending", state.out / "bundles" / "vending"
    state.run_job("train-source", *SOURCE_ARGUMENTS, "--out", source)
    state.run_job("train-vending", *VENDING_ARGUMENTS, "--init-from", source, "--out", run)
    state.run_job("publish", "--run", run, "--out", bundle, "--no-native")
    return [describe_fine_tuning(Manifest.read(bundle / MANIFEST_FILE))]


def start_service(state: DemoState) -> list[str]:
    """Serve the bundle and send it images like those it was trained on."""
    link, port = state.out / "bundles" / "served", state.clients.port
    link.symlink_to("vending")
    settings: dict[str, Any] = {"bundle": link, "port": port, "reload_seconds": 1, "report_seconds": 0.1}
    settings |= {"state_dir": state.out / "state"}
    settings |= {"capture_dir": state.out / "kept", "max_captures": 4 * LABEL_COUNT}
    command = (
        str(ENVIRONMENT_BIN / "serve"),
        "run",
        "services.app:build",
        *(f"{name}={value}" for name, value in settings.items()),
    )
    log = state.out / "logs" / "serve.log"
    process = state.private_ray.start_command(*command, log=log)
    wait_until(lambda: process.poll() is not None or state.clients.is_ready(), 120, "the service to start")
    if process.poll() is not None:
        raise CommandFailed(f"cannot start the service: see {log}")
    state.send_images("clean")
    verdict = state.send_until_verdict({"ok"})
    return [
        f"{describe_answers(state.story.sent['clean'])}; the verdict is {verdict.state}",
        f"http://127.0.0.1:{port}/ shows requests and drift while the demo runs",
    ]


def change_light(state: DemoState) -> list[str]:
    """Send images under warmer light with reflections, and wait for the verdict of drift."""
    state.send_images("drift", EVENING_SCENE)
    verdict = state.send_until_verdict({"drift"}, EVENING_SCENE)
    save_verdict(state, verdict)
    return [f"{describe_answers(state.story.sent['drift'])}; {describe_verdict(verdict)}", f"why: {verdict.why}"]


def save_verdict(state: DemoState, verdict: StreamVerdict) -> None:
    """Write the verdict and its page to the folder drift/."""
    model, clients = load_bundle(str(state.out / "bundles" / "vending")), state.clients
    moved = [
        (make_thumbnail(clients.request_service("GET", f"/capture/{capture.id}")), capture.label)
        for capture in clients.list_drift_captures(MAX_THUMBNAILS_PER_ROW)
    ]
    write_json(state.out / "drift" / "verdict.json", verdict.to_json())
    chart_history = msgspec.convert(clients.request_service("GET", "/drift/charts"), type=ChartHistory)
    events = [DriftEvent.from_json(event) for event in clients.request_service("GET", "/drift/history")["events"]]
    reference_images = reference_thumbnails(model.load_reference_arrays(), model.classes)
    page = drift_page(verdict, moved, reference_images, chart_history, events)
    write_page(page, state.out / "drift" / "drift.html")


def adapt_and_swap(state: DemoState) -> list[str]:
    """Label a hundred images, then adapt the model and swap it in while requests keep coming."""
    clients, link = state.clients, state.out / "bundles" / "served"
    for _ in range(MAX_LABEL_ROUNDS):
        if len(clients.list_drift_captures(LABEL_COUNT)) == LABEL_COUNT:
            break
        clients.count_correct(LABEL_COUNT, EVENING_SCENE)
    state.story.labels = clients.label_captures(LABEL_COUNT)
    old_version = clients.served_version()
    answers_before, failures_before = clients.answers_by_version.total(), len(clients.failure_reasons)
    with clients.send_in_background(EVENING_SCENE, PAUSE_SECONDS):
        service = ("--service", f"http://127.0.0.1:{clients.port}", "--capture-dir", state.out / "kept")
        state.run_job("adapt", *service, "--link", link, "--out", state.out / "bundles" / "adapted")
        wait_until(lambda: clients.served_version() != old_version, 60, "the swap")
    state.story.swap = SwapRequests(
        requests=clients.answers_by_version.total() - answers_before,
        unanswered=len(clients.failure_reasons) - failures_before,
    )
    state.send_images_and_read_verdict("adapted", EVENING_SCENE)
    state.send_images_and_read_verdict("again", Scene())
    state.send_images_and_read_verdict("mixed", Scene(), EVENING_SCENE)
    lost = state.recorded_accuracy("clean") - state.recorded_accuracy("drift")
    if lost <= 0:
        raise CommandFailed("the new light cost no accuracy: there is nothing to recover")
    state.story.regained = (state.recorded_accuracy("adapted") - state.recorded_accuracy("drift")) / lost
    return [describe_recovery(state.story), *describe_phase_verdicts(state.story).values()]


CHAPTERS: dict[str, Callable[[DemoState], list[str]]] = {
    "sweep digits for a plan and confirm it": sweep_and_confirm,
    "fine-tune a classifier of vending products and publish it": fine_tune_and_publish,
    "serve it to simulated clients": start_service,
    "the light changes": change_light,
    "adapt to it and swap the model under load": adapt_and_swap,
}
