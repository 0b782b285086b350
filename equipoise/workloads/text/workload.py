"""Workload of texts: one whose inputs are windows of tokens, with the vocabulary that makes them."""

from dataclasses import dataclass

from equipoise.texts.vocabulary import Vocabulary
from equipoise.workloads.base import Workload


@dataclass(frozen=True, kw_only=True)
class TextWorkload(Workload):
    """Learning task on the characters of texts, of which the model predicts the next; it can be served."""

    vocabulary: Vocabulary
    """characters that the model knows"""
    window: int
    """characters that it sees at most"""
