"""Build reference profiles of rows of a table and of texts, and extract from new ones what their charts need."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from equipoise.drift.features.table_columns import Columns
from equipoise.drift.features.table_stats import ANSWER_BIN_NAMES, TableEncoder, fit_table_encoder
from equipoise.drift.features.text_stats import TextEncoder, fit_text_encoder, fit_window_encoder
from equipoise.drift.profiling.reference_examples import ReferenceExamples, build_profile_from_examples
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.errors import EquipoiseError
from equipoise.type_aliases import AnyArray

TEXT_CLASSES = ("texts",)
"""classes of the answers of a language model, which has none"""


@dataclass(frozen=True, eq=False)
class AnsweredRows:
    """Rows of a table that a model was not trained on, with its answers."""

    columns: Columns
    answers: AnyArray
    """numbers (n,), or calibrated logits (n, classes)"""
    targets: AnyArray | None = None
    """(n,) true numbers or class indices; None where they are unknown"""
    features: AnyArray | None = None
    """(n, width) features of the model; None: the standardized columns take their place"""

    def encode(self, encoder: TableEncoder) -> ReferenceExamples:
        """Return the rows as examples of a reference."""
        classes = encoder.classes(self.answers)
        labels = classes
        if self.targets is not None:
            is_number = encoder.answer_edges is not None
            labels = encoder.classes(self.targets) if is_number else np.asarray(self.targets, np.int64)
        features = encoder.features(self.columns) if self.features is None else self.features
        statistics = encoder.statistics(self.columns, self.answers)
        return ReferenceExamples(statistics, classes, features, labels, has_labels=self.targets is not None)


@dataclass(frozen=True, eq=False)
class AnsweredTexts:
    """Texts that a model was not trained on, with how well it predicts them."""

    texts: Sequence[str]
    nats_per_token: AnyArray
    """(n,) mean loss of the tokens of each text"""
    features: AnyArray
    """(n, width) features of the model"""
    token_nats: AnyArray | None = None
    """(n, length - 1) loss of each token after the first, where all texts are windows of one length"""

    def encode(self, encoder: TextEncoder) -> ReferenceExamples:
        """Return the texts as examples of a reference, all of one class."""
        none = np.zeros(len(self.texts), np.int64)
        return ReferenceExamples(encoder.statistics(self.texts, self.nats_per_token), none, self.features, none)

    def fit_encoder(self) -> TextEncoder:
        """Return the encoder that fits these texts as a reference."""
        if self.token_nats is None:
            return fit_text_encoder(self.texts)
        return fit_window_encoder(self.texts, self.token_nats)


def concat_answered_texts(parts: Sequence[AnsweredTexts]) -> AnsweredTexts:
    """Return the texts of several parts, with the loss of each token where all are windows of one length."""
    token_nats = [part.token_nats for part in parts if part.token_nats is not None]
    is_even = len(token_nats) == len(parts) and len({nats.shape[1] for nats in token_nats}) == 1
    return AnsweredTexts(
        [text for part in parts for text in part.texts],
        np.concatenate([part.nats_per_token for part in parts]),
        np.concatenate([part.features for part in parts]),
        np.concatenate(token_nats) if is_even else None,
    )


def build_table_profile(
    reference: AnsweredRows,
    class_names: Sequence[str] = ANSWER_BIN_NAMES,
    holdout: AnsweredRows | None = None,
    category_columns: Sequence[str] | None = None,
    conditions: Sequence[tuple[str, AnsweredRows]] = (),
) -> ReferenceProfile:
    """Build the profile of rows; `class_names` are those of the logits, or of the bins of a number.

    `conditions` are rows of further conditions that the model knows, each with its name: they are no drift either.
    """
    encoder = fit_table_encoder(reference.columns, reference.answers, category_columns)
    examples, held_out = reference.encode(encoder), holdout.encode(encoder) if holdout else None
    known = [(name, rows.encode(encoder)) for name, rows in conditions]
    profile = build_profile_from_examples(encoder.schema, examples, class_names, held_out, known)
    return replace(profile, encoder=encoder)


def build_text_profile(
    reference: AnsweredTexts, holdout: AnsweredTexts | None = None, known_characters: str = ""
) -> ReferenceProfile:
    """Build the profile of texts, or of windows of one length, with which texts of any length can be compared.

    The features of windows are not compared: they differ between any two books, and with the length of a text.
    `known_characters` are characters of the training texts, which are not new even if the reference has none of them.
    """
    encoder = reference.fit_encoder()
    encoder = replace(encoder, known_characters=encoder.known_characters | {*known_characters})
    examples, held_out = reference.encode(encoder), holdout.encode(encoder) if holdout else None
    profile = build_profile_from_examples(
        encoder.schema, examples, TEXT_CLASSES, held_out, charts_features=encoder.windows is None
    )
    return replace(profile, encoder=encoder)


def extract_row_features(profile: ReferenceProfile, rows: AnsweredRows) -> ImageFeatures:
    """Return what the charts of a profile need of new rows; refuse a profile of another kind."""
    if not isinstance(profile.encoder, TableEncoder):
        raise build_kind_error(profile, "rows of a table")
    return extract_example_features(profile, rows.encode(profile.encoder))


def extract_text_features(profile: ReferenceProfile, texts: AnsweredTexts) -> ImageFeatures:
    """Return what the charts of a profile need of new texts; refuse a profile of another kind."""
    if not isinstance(profile.encoder, TextEncoder):
        raise build_kind_error(profile, "texts")
    return extract_example_features(profile, texts.encode(profile.encoder))


def extract_example_features(profile: ReferenceProfile, examples: ReferenceExamples) -> ImageFeatures:
    """Return what the charts of a profile need of examples."""
    return profile.baseline.extract_from_statistics(examples.statistics, examples.predicted_classes, examples.features)


def build_kind_error(profile: ReferenceProfile, examples: str) -> EquipoiseError:
    """Return the error of comparing examples with a reference of another kind."""
    return EquipoiseError(
        "reference-unusable",
        f"cannot compare {examples} with the reference: it is of {profile.schema.example_name}",
        "use the bundle of a model that takes them",
    )


def compare_rows(profile: ReferenceProfile, reference: AnsweredRows, rows: AnsweredRows) -> DatasetVerdict:
    """Return the verdict on a table at once, given the rows of the reference; `moved` are numbers of rows from 0."""
    if not isinstance(profile.encoder, TableEncoder):
        raise build_kind_error(profile, "rows of a table")
    return compare_examples(profile, reference.encode(profile.encoder), rows.encode(profile.encoder))


def compare_texts(profile: ReferenceProfile, reference: AnsweredTexts, texts: AnsweredTexts) -> DatasetVerdict:
    """Return the verdict on texts at once, given those of the reference; `moved` are their numbers from 0."""
    if not isinstance(profile.encoder, TextEncoder):
        raise build_kind_error(profile, "texts")
    return compare_examples(profile, reference.encode(profile.encoder), texts.encode(profile.encoder))


def compare_examples(
    profile: ReferenceProfile, reference: ReferenceExamples, examples: ReferenceExamples
) -> DatasetVerdict:
    """Return the verdict on examples of any kind at once, given those of the reference."""
    current, usual = (extract_example_features(profile, part) for part in (examples, reference))
    return compute_dataset_verdict(
        profile,
        current,
        examples.features,
        reference.features,
        reference.predicted_classes,
        reference_conditions=usual.conditions,
    )
