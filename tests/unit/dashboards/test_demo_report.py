"""What is told of a demo is what its records hold."""

import json

import pytest

from dashboards.demo_report import (
    DemoRecords,
    build_demo_page,
    describe_confirmation,
    read_demo_records,
    summarize_demo,
)
from dashboards.page import render_html
from equipoise.storage.atomic import write_json

SENT = {"clean": (400, 388), "drift": (400, 148), "adapted": (400, 372), "again": (400, 390)}
RECORDS = {
    "sweep/plan.json": {
        "plan": {
            "nodes": 1,
            "workers": 2,
            "batch": 24,
            "lr": 0.137,
            "seconds": {"value": 4.51, "low": 3.52, "high": 5.53},
        }
    },
    "sweep/confirm.json": {
        "seconds": 4.74,
        "inside": True,
        "predicted": {"low": 3.52, "high": 5.53},
        "examples": {"value": 900.0, "predicted": 1000.0, "ratio": 0.9},
        "step": {"value": 0.0027, "predicted": 0.0015, "ratio": 1.8},
    },
    "vending/record.json": {"laps": [{"seen": 5760}]},
    "bundles/vending/bundle.json": {"metrics": {"accuracy": 0.978}, "engine": {"name": "onnxruntime"}},
    "drift/verdict.json": {
        "cause": "colour temperature",
        "why": "colour temperature 4010 K",
        "since": {"images": 397},
        "images": 811,
    },
    "story.json": {
        "demo": 1,
        "chapters": [{"title": name, "seconds": 51.0 + at} for at, name in enumerate("abcde")],
        "sent": {
            **{
                name: {"requests": whole, "right": right, "accuracy": right / whole, "unanswered": 0}
                for name, (whole, right) in SENT.items()
            },
            "meanwhile": {"requests": 1234, "unanswered": 0},
        },
        "labels": 100,
        "regained": (372 - 148) / (388 - 148),
        "seconds": 301.0,
    },
}


def require_numbers(found: DemoRecords) -> None:
    """Shares and sums are those of the counts that were noted."""
    sent = found.story["sent"]
    for one in (one for one in sent.values() if "right" in one):
        assert one["accuracy"] == one["right"] / one["requests"]
    clean, drift, adapted = (sent[name]["accuracy"] for name in ("clean", "drift", "adapted"))
    assert found.story["regained"] == pytest.approx((adapted - drift) / (clean - drift))
    assert sum(one["seconds"] for one in found.story["chapters"]) <= found.story["seconds"]


@pytest.fixture
def demo(tmp_path):
    for name, facts in RECORDS.items():
        write_json(tmp_path / name, facts)
    return tmp_path


def test_each_line_is_of_its_record(demo):
    found = read_demo_records(demo)
    require_numbers(found)
    assert summarize_demo(found) == {
        "plan": "2 workers x 24 at a learning rate of 0.137: predicted 4.51 s to the target (3.52 s to 5.53 s);"
        " confirmation run: 4.74 s, inside the predicted interval",
        "model": "test accuracy 97.8% after 5,760 examples; engine onnxruntime",
        "service": "97.0% of 400 answers correct",
        "drift": "37.0% of 400 answers correct; cause: colour temperature, for the last 397 of 811 requests",
        "remedy": "100 labels, 1,234 requests in the meantime, 0 unanswered; 93.0% of 400 answers correct under the new"
        " light, 97.5% of 400 answers correct under the old light: 93.3% of the lost accuracy recovered",
    }


def test_a_plan_that_did_not_keep_its_word_is_told_so():
    confirm = RECORDS["sweep/confirm.json"]
    why = "outside the predicted interval, with 0.90 times the predicted examples and 1.80 times the predicted time"
    assert why in describe_confirmation({**confirm, "inside": False})
    assert "did not reach" in describe_confirmation({**confirm, "seconds": None})


def test_the_page_shows_what_was_right(demo):
    page = build_demo_page(read_demo_records(demo))
    (panel,) = page.iter_panels()
    assert list(panel.figure.data[0].y) == [right / whole for whole, right in SENT.values()]
    text = render_html(page)
    for words in ("test accuracy 97.8%", "1,234 requests", "sweep/curve.html", "3. c: 53 s"):
        assert words in text
    json.dumps(summarize_demo(read_demo_records(demo)))
