"""Chapters of the demo's first act, on pictures of one product each: each runs the commands that a user would give."""

from collections.abc import Callable

from dashboards.demo_report import describe_model, describe_plan
from dashboards.plan_confirmation import describe_plan_status
from equipoise.bundle.folder import MANIFEST_FILE
from equipoise.bundle.manifest import Manifest
from equipoise.errors import CommandFailed
from equipoise.planning.document import PLAN_FILE, PlanDocument
from equipoise.workloads.vending.renderer import Scene
from jobs.demo.demo_state import DemoState, adapt_under_load, send_after_swap, serve_bundle, wait_for_captures
from jobs.demo.drift_record import change_light
from jobs.demo.traffic import SimulatedClients

EVENING_SCENE = Scene(kelvin=4000, veil=0.1, highlight=0.3)  # warmer light, and a table that reflects it
LABEL_COUNT = 100
SWEEP_ARGUMENTS = ("--workload", "digits", "--workers", "1", "2", "--budget-seconds", "40")
SOURCE_ARGUMENTS = (
    *("--workload", "vending-source", "--batch-size", "32", "--lr", "0.05", "--schedule", "cosine"),
    *("--max-examples", "16000", "--target", "0.985"),
)
VENDING_ARGUMENTS = ("--workload", "vending", "--batch-size", "32", "--lr", "0.1", "--target", "0.97")


def sweep_and_confirm(state: DemoState) -> list[str]:
    """Sweep for workers, batch size and learning rate, and confirm the plan with a run."""
    out = state.out / "sweep"
    state.run_job("sweep", *SWEEP_ARGUMENTS, "--out", out, ok_statuses=(0, 1), result=out / PLAN_FILE)
    document = PlanDocument.read(out / PLAN_FILE)
    if document.plan is None:
        raise CommandFailed(f"the sweep found no plan: {'; '.join(document.warnings)}")
    return [describe_plan(document.plan), f"why: {document.plan.why}", describe_plan_status(document)]


def fine_tune_and_publish(state: DemoState) -> list[str]:
    """Train on other products, fine-tune on the vending machine's, and publish the model."""
    source, run, bundle = state.out / "source", state.out / "vending", state.out / "bundles" / "vending"
    state.run_job("train-source", *SOURCE_ARGUMENTS, "--out", source)
    state.run_job("train-vending", *VENDING_ARGUMENTS, "--init-from", source, "--out", run)
    state.run_job("publish", "--run", run, "--out", bundle, "--no-native")
    return [describe_model(Manifest.read(bundle / MANIFEST_FILE))]


def start_service(state: DemoState) -> list[str]:
    """Serve the bundle and send it images like those it was trained on."""
    return serve_bundle(state, "vending", 4 * LABEL_COUNT)


def turn_on_evening_light(state: DemoState) -> list[str]:
    """Send images under warmer light with reflections, and wait for the verdict of drift."""
    return change_light(state, EVENING_SCENE, "vending")


def adapt_and_swap(state: DemoState) -> list[str]:
    """Label a hundred images, then adapt the model and swap it in while requests keep coming."""
    if not isinstance(state.clients, SimulatedClients):
        raise TypeError("the clients of this act show one product at a time")
    wait_for_captures(state, LABEL_COUNT, EVENING_SCENE)
    state.story.labels = state.clients.label_captures(LABEL_COUNT)
    adapt_under_load(state, EVENING_SCENE)
    return send_after_swap(state, EVENING_SCENE)


CHAPTERS: dict[str, Callable[[DemoState], list[str]]] = {
    "sweep digits for a plan and confirm it": sweep_and_confirm,
    "fine-tune a classifier of vending products and publish it": fine_tune_and_publish,
    "serve it to simulated clients": start_service,
    "the light changes": turn_on_evening_light,
    "adapt to it and swap the model under load": adapt_and_swap,
}
