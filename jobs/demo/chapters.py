"""The chapters of the demo: each runs the commands a user would give, and leaves records."""

import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dashboards.demo_report import (
    EMPTY_STORY_JSON,
    describe_answers,
    describe_confirmation,
    describe_fine_tuning,
    describe_planned,
    describe_recovery,
    describe_verdict,
)
from dashboards.page import write_page
from dashboards.reports import drift_page
from equipoise.bundle.bundle import load_bundle
from equipoise.images.thumbnails import MAX_THUMBNAILS_PER_ROW, make_thumbnail, reference_thumbnails
from equipoise.storage.atomic import read_json, write_json
from equipoise.workloads.vending.renderer import Scene
from jobs.cluster.private_ray import ENVIRONMENT_BIN, PrivateRay
from jobs.cluster.processes import wait_until
from jobs.demo.traffic import SimulatedClients

EVENING_SCENE = Scene(kelvin=4000, veil=0.1, highlight=0.3)  # a warmer light, and a table that reflects
IMAGES_PER_SCENE, LABEL_COUNT = 400, 100
MAX_LABEL_ROUNDS = 10  # of customers, until that many of their pictures are kept
SWEEP_ARGUMENTS = ("--workload", "digits", "--workers", "1", "2", "--budget-seconds", "40")
SOURCE_ARGUMENTS = (
    *("--workload", "vending-source", "--batch-size", "32", "--lr", "0.05", "--schedule", "cosine"),
    *("--max-examples", "16000", "--target", "0.985"),
)
VENDING_ARGUMENTS = ("--workload", "vending", "--batch-size", "32", "--lr", "0.1", "--target", "0.97")
PAUSE_SECONDS = 0.1  # seconds between customers while the machine learns on: it has two cores


@dataclass
class DemoState:
    """What happened so far."""

    out: Path
    private_ray: PrivateRay
    clients: SimulatedClients
    story: dict[str, Any] = field(default_factory=lambda: deepcopy(dict(EMPTY_STORY_JSON)))
    """what no other record has: what was sent, and what came back"""

    def run_job(self, name: str, *arguments: object, ok_statuses: tuple[int, ...] = (0,)) -> None:
        """A job, as a user would call it, to its end; what it says goes into logs/."""
        module, log = name.partition("-")[0], self.out / "logs" / f"{name}.log"
        status = self.private_ray.start_command(
            sys.executable, "-m", f"jobs.{module}", *map(str, arguments), log=log
        ).wait()
        if status not in ok_statuses:
            last = "\n".join(log.read_text(errors="replace").strip().splitlines()[-5:])
            raise RuntimeError(f"jobs.{module} ended with {status}; {log} has all of it:\n{last}")

    def send_images(self, name: str, scene: Scene | None = None) -> None:
        """Customers come, and what they got is noted."""
        missed = len(self.clients.failure_reasons)
        right = self.clients.count_correct(IMAGES_PER_SCENE, scene)
        self.story["sent"][name] = {
            "light": asdict(scene or Scene()),
            "requests": IMAGES_PER_SCENE,
            "right": right,
            "accuracy": right / IMAGES_PER_SCENE,
            "unanswered": len(self.clients.failure_reasons) - missed,
        }

    def recorded_accuracy(self, name: str) -> float:
        """Share that was right of what was sent."""
        return float(self.story["sent"][name]["accuracy"])

    def wait_for_verdict(self, state: str) -> dict[str, Any]:
        """What the service says of all requests, once it says that."""

        def found() -> dict[str, Any] | None:
            said: dict[str, Any] = self.clients.request_service("GET", "/drift")
            counted = said["images"] >= self.clients.answers_by_version[said["version"]]
            return said if said["state"] == state and counted else None

        said: dict[str, Any] = wait_until(found, 60, f"a verdict of {state}")
        return said

    def read_record(self, *path_parts: str) -> dict[str, Any]:
        """A record that was left."""
        found: dict[str, Any] = read_json(self.out.joinpath(*path_parts))
        return found


def sweep_and_confirm(state: DemoState) -> list[str]:
    """How many workers, what batch, what rate?"""
    state.run_job("sweep", *SWEEP_ARGUMENTS, "--out", state.out / "sweep", ok_statuses=(0, 1))
    found = state.read_record("sweep", "plan.json")
    if found["plan"] is None:
        raise RuntimeError(f"the sweep came to no plan: {'; '.join(found['warnings'])}")
    confirm = state.read_record("sweep", "confirm.json")
    return [describe_planned(found), f"why: {found['plan']['why']}", describe_confirmation(confirm)]


def fine_tune_and_publish(state: DemoState) -> list[str]:
    """Fine-tune what has seen other products, and publish it."""
    source, run, made = state.out / "source", state.out / "vending", state.out / "bundles" / "vending"
    state.run_job("train-source", *SOURCE_ARGUMENTS, "--out", source)
    state.run_job("train-vending", *VENDING_ARGUMENTS, "--init-from", source, "--out", run)
    state.run_job("publish", "--run", run, "--out", made, "--no-native")
    return [
        describe_fine_tuning(
            state.read_record("vending", "record.json"), state.read_record("bundles", "vending", "bundle.json")
        )
    ]


def start_service(state: DemoState) -> list[str]:
    """Serve it, and send what it knows."""
    link, port = state.out / "bundles" / "served", state.clients.port
    link.symlink_to("vending")
    words = {"bundle": link, "port": port, "reload_seconds": 1, "report_seconds": 0.1, "state_dir": state.out / "state"}
    words |= {"capture_dir": state.out / "kept", "max_captures": 4 * LABEL_COUNT}
    command = (
        str(ENVIRONMENT_BIN / "serve"),
        "run",
        "services.app:build",
        *(f"{name}={value}" for name, value in words.items()),
    )
    log = state.out / "logs" / "serve.log"
    process = state.private_ray.start_command(*command, log=log)
    wait_until(lambda: process.poll() is not None or state.clients.is_ready(), 120, "the service's start")
    if process.poll() is not None:
        raise RuntimeError(f"the service does not start: {log} says why")
    state.send_images("clean")
    found = state.wait_for_verdict("ok")
    return [
        f"{describe_answers(state.story['sent']['clean'])}; the verdict is {found['state']}",
        f"http://127.0.0.1:{port}/ shows requests and drift while this goes on",
    ]


def change_light(state: DemoState) -> list[str]:
    """The light gets warmer, the table reflects."""
    state.send_images("drift", EVENING_SCENE)
    found = state.wait_for_verdict("drift")
    save_verdict(state, found)
    return [f"{describe_answers(state.story['sent']['drift'])}; {describe_verdict(found)}", f"why: {found['why']}"]


def save_verdict(state: DemoState, verdict: dict[str, Any]) -> None:
    """The verdict and its page, kept."""
    model, asked = load_bundle(str(state.out / "bundles" / "vending")), state.clients
    moved = [
        (make_thumbnail(asked.request_service("GET", f"/capture/{one['id']}")), one["label"])
        for one in asked.list_drift_captures(MAX_THUMBNAILS_PER_ROW)
    ]
    write_json(state.out / "drift" / "verdict.json", verdict)
    trace, events = (
        asked.request_service("GET", "/drift/charts"),
        asked.request_service("GET", "/drift/history")["events"],
    )
    page = drift_page(verdict, moved, reference_thumbnails(model.load_reference_arrays(), model.classes), trace, events)
    write_page(page, state.out / "drift" / "drift.html")


def adapt_and_swap(state: DemoState) -> list[str]:
    """A hundred labels, and a model that learns on while customers come."""
    asked, link = state.clients, state.out / "bundles" / "served"
    for _ in range(MAX_LABEL_ROUNDS):
        if len(asked.list_drift_captures(LABEL_COUNT)) == LABEL_COUNT:
            break
        asked.count_correct(LABEL_COUNT, EVENING_SCENE)
    state.story["labels"] = asked.label_captures(LABEL_COUNT)
    before, answered, missed = asked.served_version(), asked.answers_by_version.total(), len(asked.failure_reasons)
    with asked.send_in_background(EVENING_SCENE, PAUSE_SECONDS):
        words = ("--service", f"http://127.0.0.1:{asked.port}", "--capture-dir", state.out / "kept", "--link", link)
        state.run_job("adapt", *words, "--out", state.out / "bundles" / "adapted")
        wait_until(lambda: asked.served_version() != before, 60, "the swap")
    meanwhile = {
        "requests": asked.answers_by_version.total() - answered,
        "unanswered": len(asked.failure_reasons) - missed,
    }
    state.story["sent"]["meanwhile"] = meanwhile
    state.send_images("adapted", EVENING_SCENE)
    state.send_images("again")
    lost = state.recorded_accuracy("clean") - state.recorded_accuracy("drift")
    if lost <= 0:
        raise RuntimeError("the light cost nothing: there was nothing to bring back")
    state.story["regained"] = (state.recorded_accuracy("adapted") - state.recorded_accuracy("drift")) / lost
    return [describe_recovery(state.story)]


CHAPTERS: dict[str, Callable[[DemoState], list[str]]] = {
    "sweep digits for a plan, and confirm it": sweep_and_confirm,
    "fine-tune a vending machine's eye, and publish it": fine_tune_and_publish,
    "serve it to customers": start_service,
    "the light changes": change_light,
    "adapt to it, and swap while customers come": adapt_and_swap,
}
