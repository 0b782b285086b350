"""Which workloads can be published, and what a card and a line say about models of each kind."""

import msgspec
import numpy as np
import pytest

from equipoise.boxes.mean_average_precision import match_pictures
from equipoise.bundle.evaluation import Evaluation
from equipoise.bundle.kinds.detection import DetectionEvaluation
from equipoise.bundle.kinds.language import LanguageEvaluation
from equipoise.bundle.kinds.regression import RegressionEvaluation
from equipoise.bundle.manifest import summarize_metrics
from equipoise.tables.columns import TableColumn
from equipoise.tables.labels import TableLabel
from equipoise.tables.spec import TableSpec
from jobs.publishing.kinds.boxes_publication import evaluate_detection
from jobs.publishing.kinds.card_texts import describe_evaluation, describe_table_task
from jobs.publishing.kinds.choose_publication import choose_publication
from jobs.publishing.kinds.publication import add_drift_findings
from jobs.publishing.kinds.table_publication import describe_unwatched_columns
from tests.support import any_workloads
from tests.support.errors import raises_code

DETECTION = DetectionEvaluation(
    average_precision=0.625,
    average_precision_50=0.9012,
    by_class={"cola": 0.7},
    threshold=0.4,
    precision=0.875,
    recall=0.8,
)
NO_BOX = [-1.0, 0, 0, 1, 1, 0]
REGRESSION = RegressionEvaluation(r2=0.9312, rmse=1.25, half_width=2.5, coverage=0.905)


def test_workload_of_unknown_data_is_refused_with_what_can_be_published():
    with raises_code("workload-invalid", "ImageWorkload", "table"):
        choose_publication(any_workloads.table(), "publish --run x")


@pytest.mark.parametrize(
    ("metrics", "parts"),
    [
        (Evaluation(0.9, {}, 0.1, 0.05, 1.5), ["accuracy 0.9000"]),
        (REGRESSION, ["R2 0.9312", "error 1.25", "90.5% of values within 2.5"]),
        (RegressionEvaluation(r2=0.5, rmse=1.0, half_width=None, coverage=None), ["R2 0.5000"]),
        (LanguageEvaluation(nats_per_token=1.75, tokens=100), ["1.7500 nats per token"]),
        (DETECTION, ["mAP 0.6250", "0.9012"]),
    ],
)
def test_summary_names_the_figure_of_the_kind(metrics, parts):
    summary = summarize_metrics(metrics)
    assert all(part in summary for part in parts)


def test_card_describes_the_interval_and_the_columns():
    assert "90% of new values" in describe_evaluation(REGRESSION)[0]
    assert "90.5% of the test split" in describe_evaluation(REGRESSION)[0]
    label = TableLabel(name="price", kind="number")
    spec = TableSpec(columns=(TableColumn(name="age", kind="number"),), label=label, ignored={"id": "it numbers rows"})
    assert describe_table_task(spec) == (
        "Predicts the number in column `price` of a table from `age`. It ignores `id` (it numbers rows)."
    )


def test_card_describes_the_score_from_which_a_box_counts():
    first, *_, last = describe_evaluation(DETECTION)
    assert all(part in first for part in ("0.625", "0.901", "0.400", "87.5%", "80.0%")) and last == "| cola | 0.700 |"


def test_note_names_how_many_columns_are_watched_by_themselves():
    columns = tuple(TableColumn(name=f"x{index}", kind="number") for index in range(3))
    spec = TableSpec(columns=columns, label=TableLabel(name="y", kind="number"))
    assert describe_unwatched_columns(spec, ["x0", "x1", "x2"]) is None
    assert describe_unwatched_columns(spec, ["x0"]).startswith("the first 1 of 3 columns")


def test_findings_say_what_a_profile_cannot_do():
    findings = add_drift_findings(
        REGRESSION, {"labels": 1}, {"drift.why not": "the reference has 60 rows"}, "few columns"
    )
    assert findings.warning == "the service cannot detect drift: the reference has 60 rows; few columns"
    assert findings.false_alarm_rate is None and findings.arrays.keys() == {"labels", "drift.why not"}


def test_class_that_only_crowds_have_in_the_test_split_gets_no_precision():
    answers = np.array([[[1.0, 1, 10, 10, 0.9, 0]]] * 2)
    boxes = np.array([[[0.0, 1, 1, 10, 10, 0], NO_BOX], [[1.0, 1, 1, 20, 20, 1], NO_BOX]])
    metrics = evaluate_detection(match_pictures(answers, boxes), ["cola", "water"], 0.5)
    assert metrics.by_class == {"cola": pytest.approx(1.0)}
    assert msgspec.json.decode(msgspec.json.encode(metrics), type=DetectionEvaluation) == metrics
