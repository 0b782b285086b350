"""What drift charts need of answered requests, by the kind of data that they hold."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch

from equipoise.bundle.kinds.table_bundle import TableBundle
from equipoise.bundle.kinds.text_bundle import TextBundle
from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.features.box_stats import FoundBoxes
from equipoise.drift.features.table_columns import Columns
from equipoise.drift.profiling.box_profile import SearchedImages, extract_box_features
from equipoise.drift.profiling.bundle_profile import (
    collect_answered_rows,
    collect_answered_windows,
    decode_bundle_inputs,
    find_temperature,
)
from equipoise.drift.profiling.row_profile import (
    concat_answered_texts,
    extract_row_features,
    extract_text_features,
)
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.tables.watched_columns import read_row_columns
from services.serving.inference import AnsweredBatch, BoxesBatch, ComputedBatch, RowsBatch, WindowsBatch


def extract_batch_features(profile: ReferenceProfile, batches: Sequence[AnsweredBatch]) -> ImageFeatures:
    """Return what the charts of a profile need of the examples in batches of one version, in their order."""
    rows = [batch for batch in batches if isinstance(batch, RowsBatch)]
    windows = [batch for batch in batches if isinstance(batch, WindowsBatch)]
    boxes = [batch for batch in batches if isinstance(batch, BoxesBatch)]
    if rows:
        return extract_features_of_rows(profile, rows)
    if boxes:
        return extract_features_of_boxes(profile, boxes)
    return extract_features_of_windows(profile, windows) if windows else extract_features_of_images(profile, batches)


def extract_features_of_images(profile: ReferenceProfile, batches: Sequence[AnsweredBatch]) -> ImageFeatures:
    """Return what charts need of images."""
    parts = [(batch.images, batch.logits, batch.features) for batch in batches if isinstance(batch, ComputedBatch)]
    return profile.baseline.extract_features(*(torch.cat(tensors).numpy() for tensors in zip(*parts, strict=True)))


def extract_features_of_boxes(profile: ReferenceProfile, batches: Sequence[BoxesBatch]) -> ImageFeatures:
    """Return what charts need of images and of the boxes found in them."""
    names = ("images", "scores", "boxes", "labels", "features")
    images, *outputs = (torch.cat([getattr(batch, name) for batch in batches]) for name in names)
    return extract_box_features(profile, SearchedImages(images, FoundBoxes(*(output.numpy() for output in outputs))))


def extract_features_of_rows(profile: ReferenceProfile, batches: Sequence[RowsBatch]) -> ImageFeatures:
    """Return what charts need of rows of a table."""
    bundle = batches[0].version.bundle
    if not isinstance(bundle, TableBundle):
        raise TypeError(f"{bundle.name} is no model of a table")
    outputs, features = (torch.cat([getattr(batch, name) for batch in batches]) for name in ("outputs", "features"))
    contents = [content for batch in batches for content in batch.contents]
    parts: list[Columns] = []
    for is_encoded, group in groupby(contents, lambda content: isinstance(content, tuple)):
        items: list[Any] = [*group]
        if is_encoded:
            parts += [decode_bundle_inputs(bundle, profile, tensors) for tensors in items]
        else:
            parts.append(read_row_columns(bundle.spec, items))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return extract_row_features(profile, collect_answered_rows(columns, outputs, features, find_temperature(bundle)))


def extract_features_of_windows(profile: ReferenceProfile, batches: Sequence[WindowsBatch]) -> ImageFeatures:
    """Return what charts need of windows of texts."""
    bundle = batches[0].version.bundle
    if not isinstance(bundle, TextBundle):
        raise TypeError(f"{bundle.name} is no language model")
    parts = [
        collect_answered_windows(bundle.vocabulary, windows, logits, text)
        for batch in batches
        for windows, logits, text in zip(batch.windows, batch.logits, batch.texts, strict=True)
    ]
    return extract_text_features(profile, concat_answered_texts(parts))
