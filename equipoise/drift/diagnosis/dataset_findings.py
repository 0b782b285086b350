"""What a check of a data set finds besides its charts: measured errors, support by the reference, proof of causes."""

from typing import Literal

import msgspec

from equipoise.formatting import format_number


class MeasuredError(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy of classes, or root mean squared error of numbers, on examples whose label is known."""

    metric: Literal["accuracy", "root mean squared error"]
    """what was measured; errors are in the unit of the label"""
    value: float
    """value on the examples that have a label"""
    published: float
    """value on the test split when the model was published"""
    examples: int
    """number of examples that have a label"""

    def describe_values(self, example_name: str) -> str:
        """Return the values in words; `example_name` is what the examples are called."""
        if self.metric == "accuracy":
            value, published = f"{self.value:.1%}", f"{self.published:.1%}"
        else:
            value, published = format_number(self.value), format_number(self.published)
        return f"{value} on {self.examples:,} labelled {example_name}, {published} on test when published"


class ReferenceSupport(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the reference that is effectively like the images, and whether they lie outside of it."""

    share: float
    """share of the reference that is effectively like the images"""
    moved: bool
    """true if the images lie outside of the reference"""


class InversionProof(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the drift that is left after its causes were undone on the images."""

    left: float
    """share of the drift that is left"""
    proved: bool
    """true if so little is left that the cause is proved"""
    state: Literal["ok", "drift", "unknown"]
    """verdict on the restored images"""
