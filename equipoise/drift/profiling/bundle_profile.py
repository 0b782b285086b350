"""Reference profile of a bundle of any kind, and examples of its kind as the profile compares them."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.bundle.kinds.base_bundle import Bundle
from equipoise.bundle.kinds.table_bundle import TableBundle
from equipoise.bundle.kinds.text_bundle import UNKNOWN_CHARACTER
from equipoise.bundle.manifest import Manifest
from equipoise.drift.features.box_stats import COUNT_NAMES
from equipoise.drift.features.table_columns import Columns
from equipoise.drift.features.table_stats import ANSWER_BIN_NAMES, TableEncoder
from equipoise.drift.profiling.row_profile import TEXT_CLASSES, AnsweredRows, AnsweredTexts
from equipoise.drift.reference.profile import ReferenceProfile, profile_from_arrays
from equipoise.tables.watched_columns import MISSING_TEXT, UNKNOWN_TEXT, decode_input_columns
from equipoise.texts.vocabulary import Vocabulary
from equipoise.type_aliases import FloatArray


def load_bundle_profile(bundle: Bundle) -> ReferenceProfile:
    """Load the reference profile of a bundle; refuse one without a profile, or with that of another model."""
    arrays, width = bundle.load_reference_arrays(), bundle.manifest.outputs[-1].shape[-1]
    return profile_from_arrays(arrays, list_answer_classes(bundle.manifest), width)


def list_answer_classes(manifest: Manifest) -> Sequence[str]:
    """Return the classes that a profile sorts the answers of a model into.

    Of a regression they are quarters of its numbers, and of a detector how many boxes it finds.
    """
    if manifest.kind == "boxes":
        return COUNT_NAMES
    if manifest.kind == "text":
        return TEXT_CLASSES
    return manifest.classes or ANSWER_BIN_NAMES


def collect_answered_rows(columns: Columns, outputs: Tensor, features: Tensor, temperature: float) -> AnsweredRows:
    """Return rows with the answers of a model: numbers as they are, logits (rows, classes) over the temperature."""
    answers = outputs.numpy().astype(np.float64)
    return AnsweredRows(columns, answers / temperature if answers.ndim > 1 else answers, features=features.numpy())


def find_temperature(bundle: TableBundle) -> float:
    """Return the divisor of a model's logits; 1 for numbers."""
    return bundle.manifest.classification.temperature if bundle.classes else 1.0


def decode_bundle_inputs(bundle: TableBundle, profile: ReferenceProfile, inputs: Sequence[Tensor]) -> Columns:
    """Return the columns of rows of which only the encoded inputs are at hand.

    Code 0 stands for missing and for unknown texts; it counts as what is more frequent of the two in the reference.
    """
    texts = {column.name: find_text_of_code_0(profile, column.name) for column in bundle.spec.category_columns}
    return decode_input_columns(bundle.spec, [tensor.numpy() for tensor in inputs], texts)


def find_text_of_code_0(profile: ReferenceProfile, column: str) -> str:
    """Return what code 0 of a column of texts most often stands for in the reference: a missing or an unknown text."""
    usual = profile.baseline.usual
    if not isinstance(profile.encoder, TableEncoder):
        raise TypeError("the profile is not of rows of a table")
    if column not in profile.encoder.column_names:  # not watched by itself
        return MISSING_TEXT
    missing, unknown = (
        float(usual.counts @ usual.mean[:, index]) for index in profile.encoder.find_category_columns(column)
    )
    return UNKNOWN_TEXT if unknown > missing else MISSING_TEXT


def collect_answered_windows(
    vocabulary: Vocabulary, windows: Tensor, logits: Tensor, text: str | None = None
) -> AnsweredTexts:
    """Return windows (n, length) of tokens, and how well a language model predicts them by its logits.

    `text` is what a single window reads; without it, a character stands for all that the model does not know.
    """
    characters = np.array([*vocabulary.characters, UNKNOWN_CHARACTER], dtype=object)
    texts = ["".join(row) for row in characters[windows.numpy()]] if text is None else [text]
    token_nats, features = measure_windows(windows, logits)
    means = token_nats.mean(1) if token_nats.shape[1] else np.zeros(len(token_nats))
    return AnsweredTexts(texts, means, features, token_nats)


def measure_windows(windows: Tensor, logits: Tensor) -> tuple[FloatArray, NDArray[np.float32]]:
    """Return the loss (n, length - 1) of each token after the first of its window, and the features of the windows.

    The features are the probabilities that the model gives to each next character, averaged over the window.
    """
    log_probabilities = torch.log_softmax(logits.double(), 2)
    nats = -log_probabilities[:, :-1].gather(2, windows[:, 1:, None])[:, :, 0]
    return nats.numpy(), log_probabilities.exp().mean(1).float().numpy()
