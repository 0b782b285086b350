"""The report of a demo about a detector shows its precisions."""

import pytest

from dashboards.demo_report import build_demo_page, read_demo_records, summarize_demo
from dashboards.page import Table, render_html
from equipoise.bundle.engine_results import EngineEntry
from equipoise.bundle.kinds.boxes_input import BoxesInput
from equipoise.bundle.kinds.detection import DetectionEvaluation
from equipoise.bundle.tensor_spec import TensorSpec
from equipoise.storage.atomic import write_json
from tests.support.demo_records import RECORDS, require_numbers
from tests.support.manifests import IMAGE_INPUT, build_manifest

PRECISIONS = {"clean": 0.71, "drift": 0.4, "adapted": 0.65, "again": 0.7, "mixed": 0.68}


@pytest.fixture
def detection_folder(tmp_path):
    """Write the records of the act about a detector, and return their folder."""
    metrics = DetectionEvaluation(
        average_precision=0.712,
        average_precision_50=0.989,
        by_class={},
        threshold=0.3,
        precision=0.98,
        recall=0.97,
    )
    sent = {
        name: answers | {"average_precision": PRECISIONS[name]}
        for name, answers in RECORDS["story.json"]["sent"].items()
    }
    boxes = {"boxes": 251, "by_author": {"Ada": 33, "Bo": 27}}
    story = RECORDS["story.json"] | {"act": "detection", "sent": sent, "boxes": boxes, "labels": 60}
    regained = (PRECISIONS["adapted"] - PRECISIONS["drift"]) / (PRECISIONS["clean"] - PRECISIONS["drift"])
    inputs = BoxesInput(image=IMAGE_INPUT, max_boxes=20)
    outputs = (*inputs.list_box_outputs(), TensorSpec(name="features", dtype="float32", shape=(-1, 5)))
    kind = {"kind": "boxes", "boxes": inputs, "image": None, "inputs": inputs.list_inputs(), "outputs": outputs}
    engine = EngineEntry(name="eager", why="", table=[])
    bundle = build_manifest(metrics=metrics, engine=engine, seen=4800, **kind)
    for name, contents in {
        "bundles/shelf/bundle.json": bundle.to_json(),
        "drift/verdict.json": RECORDS["drift/verdict.json"],
        "story.json": story | {"regained": regained},
    }.items():
        write_json(tmp_path / name, contents)
    return tmp_path


def test_act_about_a_detector_is_summarized_by_its_precision(detection_folder):
    records = read_demo_records(detection_folder)
    require_numbers(records)
    assert records.plan is None
    assert summarize_demo(records) == {
        "model": "mean average precision 0.712 (0.989 at an overlap of one half) on the test split after 4,800"
        " examples; engine eager",
        "service": "97.0% of 400 answers correct (mean average precision 0.710)",
        "drift": "37.0% of 400 answers correct (mean average precision 0.400); cause: colour temperature, for the last"
        " 397 of 811 images",
        "labels": "251 boxes drawn in 60 pictures: Ada 33 and Bo 27",
        "remedy": "60 labels, 1,234 requests in the meantime, 0 unanswered; 93.0% of 400 answers correct (mean average"
        " precision 0.650) under the new light, 97.5% of 400 answers correct (mean average precision 0.700) under the"
        " old light: 80.6% of the lost mean average precision recovered",
    }


def test_page_of_a_detector_has_its_precisions_and_links_to_what_there_is(detection_folder):
    page = build_demo_page(read_demo_records(detection_folder))
    (table,) = [part for part in page.sections[0].parts if isinstance(part, Table)]
    assert [row[1].value for row in table.rows] == [*PRECISIONS.values()]
    assert [link.href for link in page.links] == ["shelf/run.html", "drift/drift.html", "experiments.html"]
    assert "a box for each product" in render_html(page)
    assert [section.title[:2] for section in page.sections[2:]] == ["1.", "2.", "3.", "4.", "5."]
