"""Chapters of the demo's second act, on pictures of whole shelves in which a detector finds each product."""

import sys
from collections.abc import Callable
from http.client import HTTPException

from dashboards.demo_report import describe_labels, describe_model
from dashboards.demo_story import LabelledBoxes
from equipoise.bundle.folder import MANIFEST_FILE
from equipoise.bundle.manifest import Manifest
from equipoise.errors import CommandFailed, EquipoiseError
from equipoise.workloads.vending.renderer import Scene
from jobs.cluster.processes import find_free_ports
from jobs.demo.demo_state import DemoState, adapt_under_load, send_after_swap, serve_bundle, wait_for_captures
from jobs.demo.drift_record import change_light
from jobs.demo.label_staff import LabelStaff
from jobs.demo.service_clients import request_json
from jobs.demo.shelf_clients import PRODUCT_NAMES, ShelfClients

EVENING_SCENE = Scene(kelvin=3000, veil=0.1, highlight=0.3)  # warm light, and a pane that reflects it
LABEL_COUNT = 60
SHELF_ARGUMENTS = (
    *("--workload", "shelf", "--batch-size", "16", "--schedule", "cosine"),
    *("--max-examples", "4800", "--target", "0.99"),  # beyond reach, so that the schedule runs to its end
)


def train_and_publish(state: DemoState) -> list[str]:
    """Train a detector of shelves, and publish it."""
    run, bundle = state.out / "shelf", state.out / "bundles" / "shelf"
    state.run_job("train", *SHELF_ARGUMENTS, "--out", run, ok_statuses=(0, 1))
    state.run_job("publish", "--run", run, "--out", bundle, "--no-native")
    return [describe_model(Manifest.read(bundle / MANIFEST_FILE))]


def start_service(state: DemoState) -> list[str]:
    """Serve the bundle and send it pictures like those it was trained on."""
    return serve_bundle(state, "shelf", 4 * LABEL_COUNT)


def turn_on_evening_light(state: DemoState) -> list[str]:
    """Send pictures under warm light with reflections, and wait for the verdict of drift."""
    return change_light(state, EVENING_SCENE, "shelf")


def draw_boxes(state: DemoState) -> list[str]:
    """Have two people draw boxes in the pictures that the service has kept, on the labelling page."""
    if not isinstance(state.clients, ShelfClients):
        raise TypeError("the clients of this act show whole shelves")
    wait_for_captures(state, LABEL_COUNT, EVENING_SCENE)
    (port,) = find_free_ports(1)
    folders = ("--images", state.captures, "--out", state.out / "labels")
    state.start_server(
        "label", [sys.executable, "-m", "jobs.label", *folders, "--port", port], lambda: is_page_open(port)
    )
    work = LabelStaff(port, state.clients.boxes_by_pixels, PRODUCT_NAMES).label_pictures(LABEL_COUNT)
    if work.pictures < LABEL_COUNT:
        raise CommandFailed(f"only {work.pictures} pictures were there to be labelled")
    state.story.labels = work.pictures
    state.story.boxes = LabelledBoxes(boxes=work.boxes, by_author=work.by_author)
    return [describe_labels(state.story)]


def is_page_open(port: int) -> bool:
    """Return whether the labelling page answers."""
    try:
        request_json(port, "GET", "/queue")
    except (OSError, HTTPException, EquipoiseError):
        return False
    return True


def adapt_and_swap(state: DemoState) -> list[str]:
    """Adapt the detector with the boxes, and swap it in while requests keep coming."""
    adapt_under_load(state, EVENING_SCENE, "--labels", state.out / "labels", "--epochs", 1)
    return send_after_swap(state, EVENING_SCENE)


DETECTION_CHAPTERS: dict[str, Callable[[DemoState], list[str]]] = {
    "train a detector of a shelf's products and publish it": train_and_publish,
    "serve it to simulated clients": start_service,
    "the light changes": turn_on_evening_light,
    "two people draw boxes in the pictures that were kept": draw_boxes,
    "adapt to them and swap the model under load": adapt_and_swap,
}
