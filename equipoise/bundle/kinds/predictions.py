"""Predictions of published models, and how they are read off the outputs of a program."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Prediction:
    """Labels, calibrated scores and features that a classifier predicts for a batch of images or rows."""

    labels: list[str]
    """predicted class of each example"""
    scores: Tensor
    """calibrated class probabilities, (examples, classes); each row sums to 1"""
    features: Tensor
    """input of the classification head (penultimate layer), (examples, features)"""


@dataclass(frozen=True)
class NumberPrediction:
    """Numbers that a model predicts for the rows of a table, each with an interval, in the unit of the label."""

    values: list[float]
    """predicted number of each row"""
    low: list[float] | None
    """lower end of the interval of each row; None if the validation split had too few rows for one"""
    high: list[float] | None
    """upper end of the interval of each row; None as for the lower end"""
    features: Tensor
    """input of the last layer, (rows, features)"""


@dataclass(frozen=True)
class NextToken:
    """Character that may come next."""

    character: str
    """the character; U+FFFD stands for all that the model does not know"""
    probability: float
    """its probability"""
    nats: float
    """negative natural logarithm of its probability"""


@dataclass(frozen=True)
class TextPrediction:
    """Characters that may follow a text, and how well the model predicts the text itself."""

    next_tokens: list[NextToken]
    """most likely characters, the most likely one first"""
    nats_per_token: float | None
    """mean of the nats of each character of the text after its first; None for a single character"""


def calibrate_scores(logits: Tensor, temperature: float) -> Tensor:
    """Return calibrated probabilities: softmax of the logits over the temperature fitted on validation."""
    return torch.softmax(logits / temperature, 1)


def name_best_classes(classes: Sequence[str], logits: Tensor) -> list[str]:
    """Return the class with the highest score of each example."""
    return [classes[index] for index in logits.argmax(1).tolist()]
