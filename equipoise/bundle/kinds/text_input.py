"""Texts that a published language model takes: characters of its vocabulary, a window of them at a time."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from msgspec import Meta

from equipoise.bundle.tensor_spec import OPEN_SIZE, TensorSpec
from equipoise.number_bounds import Count
from equipoise.texts.vocabulary import Vocabulary

TOKENS_TENSOR = "tokens"


@dataclass(frozen=True, kw_only=True)
class TextInput:
    """Texts that a model takes."""

    characters: Annotated[str, Meta(min_length=1)]
    """characters in the order of their tokens; the token after the last stands for every other character"""
    window: Count
    """characters that the model sees at most"""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Return the vocabulary of the characters."""
        return Vocabulary(self.characters)

    def list_inputs(self) -> tuple[TensorSpec, ...]:
        """Return the tensors that a model of these texts takes."""
        return (TensorSpec(name=TOKENS_TENSOR, dtype="int64", shape=(OPEN_SIZE, OPEN_SIZE)),)
