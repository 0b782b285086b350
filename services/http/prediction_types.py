"""Bodies of requests for predictions and of their replies as types, for each kind of data."""

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

BinaryText = Annotated[str, Meta(extra_json_schema={"format": "binary"})]
Base64Text = Annotated[str, Meta(extra_json_schema={"format": "byte"})]


@dataclass(frozen=True, kw_only=True)
class ImageForm:
    """One image file in a form."""

    image: Annotated[BinaryText, Meta(description="PNG, JPEG or WebP; the field may have any name")]


@dataclass(frozen=True, kw_only=True)
class ImageBody:
    """One image file in JSON."""

    image: Annotated[Base64Text, Meta(description="PNG, JPEG or WebP in base64")]


@dataclass(frozen=True, kw_only=True)
class RowBody:
    """One row of a table in JSON."""

    row: Annotated[dict[str, Any], Meta(description="value of each column by its name; null for one that is not known")]


@dataclass(frozen=True, kw_only=True)
class TextBody:
    """One text in JSON, which the model continues."""

    text: Annotated[str, Meta(min_length=1, description="text that the model continues")]


@dataclass(frozen=True, kw_only=True)
class PredictionReply:
    """Predicted label and calibrated scores of one image, or of one row of a table."""

    model: Annotated[str, Meta(description="name of the model")]
    version: Annotated[str, Meta(description="version of the bundle that answered")]
    id: Annotated[str, Meta(description="id of the request: its x-request-id, or a generated one")]
    label: Annotated[str, Meta(description="class with the highest score")]
    score: Annotated[float, Meta(ge=0, le=1, description="calibrated probability of the label")]
    scores: Annotated[dict[str, float], Meta(description="calibrated probability of each class")]


@dataclass(frozen=True, kw_only=True)
class NumberReply:
    """Predicted number of one row of a table, with an interval."""

    model: Annotated[str, Meta(description="name of the model")]
    version: Annotated[str, Meta(description="version of the bundle that answered")]
    id: Annotated[str, Meta(description="id of the request: its x-request-id, or a generated one")]
    value: Annotated[float, Meta(description="predicted number, in the unit of the label")]
    low: Annotated[float | None, Meta(description="lower end of the 90 % interval; null if the model has none")]
    high: Annotated[float | None, Meta(description="upper end of the 90 % interval; null if the model has none")]


@dataclass(frozen=True, kw_only=True)
class NextTokenReply:
    """Character that may come next in a text."""

    character: Annotated[str, Meta(description="the character; U+FFFD stands for all that the model does not know")]
    probability: Annotated[float, Meta(ge=0, le=1, description="its probability")]
    nats: Annotated[float, Meta(description="negative natural logarithm of its probability")]


@dataclass(frozen=True, kw_only=True)
class TextReply:
    """Characters that may come next in a text, and how well the model predicts the text itself."""

    model: Annotated[str, Meta(description="name of the model")]
    version: Annotated[str, Meta(description="version of the bundle that answered")]
    id: Annotated[str, Meta(description="id of the request: its x-request-id, or a generated one")]
    next: Annotated[list[NextTokenReply], Meta(description="most likely next characters, the most likely one first")]
    nats_per_token: Annotated[
        float | None, Meta(description="mean nats of the characters after the first; null for a single one")
    ]


@dataclass(frozen=True, kw_only=True)
class BoxReply:
    """Box that a detector finds, in pixels of the image that was sent, turned upright as its EXIF says."""

    label: Annotated[str, Meta(description="class of what is in the box")]
    score: Annotated[float, Meta(ge=0, le=1, description="how sure the model is")]
    x: Annotated[float, Meta(description="left side, from the left of the image")]
    y: Annotated[float, Meta(description="top side, from the top of the image")]
    width: Annotated[float, Meta(description="width of the box")]
    height: Annotated[float, Meta(description="height of the box")]


@dataclass(frozen=True, kw_only=True)
class BoxesReply:
    """Boxes that a detector finds in one image."""

    model: Annotated[str, Meta(description="name of the model")]
    version: Annotated[str, Meta(description="version of the bundle that answered")]
    id: Annotated[str, Meta(description="id of the request: its x-request-id, or a generated one")]
    width: Annotated[int, Meta(description="width of the upright image in pixels")]
    height: Annotated[int, Meta(description="height of the upright image in pixels")]
    boxes: Annotated[list[BoxReply], Meta(description="boxes, the ones with the highest scores first")]
