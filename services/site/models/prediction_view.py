"""Answer of a service to a picture, a row or a text, as the site's page to try a model shows it."""

import io
import json
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageOps

from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number
from equipoise.images.orientation import PILLOW_FORMATS
from equipoise.images.pixel_depth import MAX_DECODED_PIXELS
from equipoise.images.png import PILLOW_ERRORS
from equipoise.type_aliases import JsonObject

MAX_SHOWN_PIXELS = 640
MAX_ROWS = 10
BOX_COLOR = "#D55E00"
UNREADABLE_PICTURE = (*PILLOW_ERRORS, Image.DecompressionBombWarning, LookupError, AttributeError, TypeError)
"""what Pillow raises for a picture that is too large, or that contradicts its own header"""


@dataclass(frozen=True, kw_only=True)
class PredictionView:
    """Answer in a headline and rows, with the picture that was sent, and boxes drawn in it."""

    headline: str
    version: str
    rows: tuple[tuple[str, str], ...]
    """name and value: scores of classes, boxes, or what may come next in a text"""
    picture: bytes | None
    """PNG"""


def build_prediction_view(answer: JsonObject, picture: bytes | None) -> PredictionView:
    """Return what the page shows of the answer of a service."""
    version = str(answer.get("version", ""))
    headline, rows = describe_answer(answer)
    shown = draw_answer(picture, answer) if picture is not None else None
    return PredictionView(headline=headline, version=version, rows=tuple(rows[:MAX_ROWS]), picture=shown)


def describe_answer(answer: JsonObject) -> tuple[str, list[tuple[str, str]]]:
    """Return the headline and the rows of an answer, by the kind of its model."""
    if "boxes" in answer:
        rows = [(box["label"], f"{box['score']:.1%}") for box in answer["boxes"]]
        return f"{len(rows)} found", rows
    if "label" in answer:
        scores = sorted(answer["scores"].items(), key=lambda item: -item[1])
        return f"{answer['label']} ({answer['score']:.1%})", [(name, f"{score:.1%}") for name, score in scores]
    if "value" in answer:
        interval = [f"{name} end of the 90 % interval" for name in ("lower", "upper")]
        ends = [(name, format_number(answer[key])) for name, key in zip(interval, ("low", "high"), strict=True)]
        return format_number(answer["value"]), ends
    following = [(repr(row["character"]), f"{row['probability']:.1%}") for row in answer.get("next", [])]
    return f"next: {following[0][0]}" if following else "no answer", following


def draw_answer(picture: bytes, answer: JsonObject) -> bytes | None:
    """Return a picture that was answered as PNG of at most 640 pixels a side, with the boxes of the answer."""
    try:
        with Image.open(io.BytesIO(picture), formats=PILLOW_FORMATS) as opened:
            if opened.width * opened.height > MAX_DECODED_PIXELS:
                return None
            image = ImageOps.exif_transpose(opened).convert("RGB")
    except UNREADABLE_PICTURE:  # the service has read it; the page can do without it
        return None
    width = image.width
    image.thumbnail((MAX_SHOWN_PIXELS, MAX_SHOWN_PIXELS))
    scale = image.width / width
    drawing = ImageDraw.Draw(image)
    for box in answer.get("boxes", []):
        left, top = box["x"] * scale, box["y"] * scale
        drawing.rectangle(
            (left, top, left + box["width"] * scale, top + box["height"] * scale), outline=BOX_COLOR, width=2
        )
        drawing.text((left + 3, top + 2), box["label"], fill=BOX_COLOR)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def read_text_request(text: str, is_row: bool) -> bytes:
    """Return the body of a request for a text, or for a row that is given as a JSON object."""
    if not text.strip():
        return b""
    if not is_row:
        return json.dumps({"text": text}).encode()
    try:
        row = json.loads(text)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise EquipoiseError("row-invalid", "cannot predict: the row is not a JSON object", 'write {"COLUMN": VALUE}')
    return json.dumps({"row": row}).encode()
