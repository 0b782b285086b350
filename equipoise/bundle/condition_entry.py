"""Entry of a known condition in the manifest of a bundle."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from equipoise.number_bounds import Count
from equipoise.type_aliases import JsonObject


@dataclass(frozen=True, kw_only=True)
class ConditionEntry:
    """Condition that a model knows beside that of its reference split, such as another light."""

    name: str
    """name that verdicts report"""
    images: Count
    """images of it in reference.npz"""
    real_share: Annotated[float, Meta(ge=0, le=1)]
    """share of these that are requests; the others were simulated"""
    changes: JsonObject
    """what it does to images of the training data, a `DriftCondition`"""
