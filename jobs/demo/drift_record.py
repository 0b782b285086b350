"""Record of a drift in the demo: the change of light, the verdict that names it, and its page."""

import msgspec

from dashboards.demo_report import describe_answers, describe_verdict
from dashboards.page import write_page
from dashboards.reports import drift_page
from equipoise.boxes.box_thumbnails import boxed_thumbnails, draw_found_boxes
from equipoise.bundle.bundle import PictureBundle, load_picture_bundle
from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.captures.capture import CaptureMetadata
from equipoise.drift.diagnosis.verdict import ChartHistory, StreamVerdict
from equipoise.drift.monitor.entries import DriftEvent
from equipoise.images.thumbnails import MAX_THUMBNAILS_PER_ROW, CaptionedPngs, make_thumbnail, reference_thumbnails
from equipoise.storage.atomic import write_json
from equipoise.workloads.vending.renderer import Scene
from jobs.demo.demo_state import DemoState


def change_light(state: DemoState, scene: Scene, bundle_name: str) -> list[str]:
    """Send images under another light, wait for the verdict of drift, and record it."""
    state.send_images("drift", scene)
    verdict = state.send_until_verdict({"drift"}, scene)
    save_verdict(state, verdict, bundle_name)
    return [f"{describe_answers(state.story.sent['drift'])}; {describe_verdict(verdict)}", f"why: {verdict.why}"]


def save_verdict(state: DemoState, verdict: StreamVerdict, bundle_name: str) -> None:
    """Write the verdict and its page to the folder drift/."""
    model = load_picture_bundle(str(state.out / "bundles" / bundle_name), "show a drift")
    clients = state.clients
    moved = [
        draw_capture(capture, clients.request_service("GET", f"/capture/{capture.id}"))
        for capture in clients.list_drift_captures(MAX_THUMBNAILS_PER_ROW)
    ]
    write_json(state.out / "drift" / "verdict.json", verdict.to_json())
    chart_history = msgspec.convert(clients.request_service("GET", "/drift/charts"), type=ChartHistory)
    events = [DriftEvent.from_json(event) for event in clients.request_service("GET", "/drift/history")["events"]]
    page = drift_page(verdict, moved, draw_reference(model), chart_history, events)
    write_page(page, state.out / "drift" / "drift.html")


def draw_capture(capture: CaptureMetadata, png: bytes) -> tuple[bytes, str]:
    """Return a captured image as a thumbnail with its label, or with the boxes that were found in it."""
    if capture.boxes is None:
        return make_thumbnail(png), capture.label
    return draw_found_boxes(png, capture.boxes), f"{len(capture.boxes)} found"


def draw_reference(model: PictureBundle) -> CaptionedPngs:
    """Return images of the reference of a model as thumbnails, with the boxes in them if it finds boxes."""
    arrays = model.load_reference_arrays()
    if isinstance(model, BoxesBundle):
        return boxed_thumbnails(arrays, model.classes, model.threshold)
    return reference_thumbnails(arrays, model.classes)
