"""Texts of a model card that depend on the kind of data: what the model does, how well, and its limits."""

from equipoise.bundle.evaluation import Evaluation
from equipoise.bundle.kinds.boxes_input import BoxesInput
from equipoise.bundle.kinds.detection import DetectionEvaluation
from equipoise.bundle.kinds.image_input import ImageInput
from equipoise.bundle.kinds.language import LanguageEvaluation
from equipoise.bundle.kinds.regression import RegressionEvaluation
from equipoise.bundle.kinds.text_input import TextInput
from equipoise.bundle.manifest import Manifest, Metrics
from equipoise.formatting import format_number, pluralize
from equipoise.tables.spec import TableSpec

LIMITS = {
    "image": "The model predicts one of its classes for every image, even for one that shows none of them. It was "
    "evaluated on images like those it was trained on: under another camera, light or background it may be "
    "wrong and still confident. The bundle contains a reference so that such a change can be detected.",
    "table": "The model predicts for every row, even for one unlike all that it was trained on. Its figures hold for "
    "rows drawn as those of the table were; a text that the table did not have counts as a missing one. The bundle "
    "contains a reference so that rows of another kind can be detected.",
    "text": "The model gives the probability of each next character, and knows nothing else. It was evaluated on text "
    "like that it was trained on; characters that this did not have are all the same to it. The bundle contains a "
    "reference so that another language or other characters can be detected; another book may be a change already.",
    "boxes": "The model looks for the things that it was trained on and for nothing else; it may miss one that is "
    "hidden, cut off, or smaller than those it learned from. It was evaluated on images like those it was trained on: "
    "under another camera, light or background it may miss more. The bundle contains a reference so that such a change "
    "can be detected.",
}
"""what to expect of a model, by its kind"""


def describe_task(manifest: Manifest) -> str:
    """Describe what a model takes and predicts."""
    if manifest.table:
        return describe_table_task(manifest.table)
    if manifest.boxes:
        return describe_boxes_task(manifest.boxes, manifest)
    return describe_text_task(manifest.text) if manifest.text else describe_image_task(manifest.image_input, manifest)


def describe_image_task(image: ImageInput, manifest: Manifest) -> str:
    """Describe the images that a model classifies."""
    return (
        f"Classifies images of {image.width}x{image.height} pixels into {len(manifest.classes)} classes, "
        f"{pluralize(image.channels, 'channel')}."
    )


def describe_boxes_task(boxes: BoxesInput, manifest: Manifest) -> str:
    """Describe the images in which a model finds boxes, and of what."""
    return (
        f"Finds up to {boxes.max_boxes} boxes in images of "
        f"{boxes.image.width}x{boxes.image.height} pixels, {pluralize(boxes.image.channels, 'channel')}, "
        f"and gives each its class, one of {len(manifest.classes)}."
    )


def describe_table_task(table: TableSpec) -> str:
    """Describe the column that a model predicts, and from how many others."""
    label = table.label
    what = "number" if label.kind == "number" else f"class, one of {len(label.classes)},"
    ignored = (
        f" It ignores {', '.join(f'`{name}` ({why})' for name, why in table.ignored.items())}." if table.ignored else ""
    )
    columns = ", ".join(f"`{column.name}`" for column in table.columns)
    return f"Predicts the {what} in column `{label.name}` of a table from {columns}.{ignored}"


def describe_text_task(text: TextInput) -> str:
    """Describe the characters that a model knows and sees."""
    return f"Predicts the next character of a text, one of {len(text.characters)}, from up to {text.window} before it."


def describe_evaluation(metrics: Metrics) -> list[str]:
    """Return the lines on how well a model does on the test split."""
    if isinstance(metrics, RegressionEvaluation):
        return [describe_regression(metrics)]
    if isinstance(metrics, LanguageEvaluation):
        return [f"{metrics.nats_per_token:.3f} nats per character, over {metrics.tokens:,} characters."]
    return describe_detection(metrics) if isinstance(metrics, DetectionEvaluation) else describe_classification(metrics)


def describe_classification(metrics: Evaluation) -> list[str]:
    """Return the lines on the accuracy and calibration of a classifier."""
    return [
        f"Accuracy {metrics.accuracy:.1%}. Scores are calibrated: logits are divided by the temperature "
        f"{metrics.temperature:.2f} before softmax. The expected calibration error is "
        f"{metrics.calibrated_error:.1%}; without the temperature it is {metrics.calibration_error:.1%}.",
        "",
        "| class | accuracy |",
        "|---|--:|",
        *(f"| {name} | {share:.1%} |" for name, share in metrics.by_class.items()),
    ]


def describe_detection(metrics: DetectionEvaluation) -> list[str]:
    """Return the lines on the average precision of a detector, and on the score from which its boxes count."""
    return [
        f"Mean average precision {metrics.average_precision:.3f} (COCO's, over overlaps of 0.50 to 0.95), "
        f"{metrics.average_precision_50:.3f} at an overlap of 0.50. Boxes count from a score of "
        f"{metrics.threshold:.3f}, which has the best F1 on the reference split: {metrics.precision:.1%} of them are "
        f"right then, and {metrics.recall:.1%} of the labelled boxes are found.",
        "",
        "| class | average precision |",
        "|---|--:|",
        *(f"| {name} | {value:.3f} |" for name, value in metrics.by_class.items()),
    ]


def describe_regression(metrics: RegressionEvaluation) -> str:
    """Describe the errors of predicted numbers, and their interval."""
    errors = f"R2 {metrics.r2:.3f}, root mean squared error {format_number(metrics.rmse)}."
    if metrics.half_width is None or metrics.coverage is None:
        return f"{errors} Predictions come without an interval: the validation split has too few rows."
    return (
        f"{errors} Each prediction comes with an interval of {format_number(metrics.half_width)} to either side, which "
        f"is to contain {metrics.level:.0%} of new values: a split-conformal one, from the errors on the validation "
        f"split. It contains {metrics.coverage:.1%} of the test split."
    )


def summarize_metrics(metrics: Metrics) -> str:
    """Return how well a model does on the test split, in a few words."""
    if isinstance(metrics, LanguageEvaluation):
        return f"{metrics.nats_per_token:.4f} nats per token on test"
    if isinstance(metrics, DetectionEvaluation):
        return f"mAP {metrics.average_precision:.4f} (at overlap 0.50: {metrics.average_precision_50:.4f}) on test"
    if isinstance(metrics, Evaluation):
        return f"accuracy {metrics.accuracy:.4f} on test"
    interval = (
        ""
        if metrics.half_width is None or metrics.coverage is None
        else f", {metrics.coverage:.1%} of values within {format_number(metrics.half_width)}"
    )
    return f"R2 {metrics.r2:.4f}, error {format_number(metrics.rmse)}{interval} on test"
