"""Answers of a service as the page to try a model shows them, by the kind of the model."""

import io
import json
import struct
import zlib

import pytest
from PIL import Image

from services.site.models.prediction_view import MAX_SHOWN_PIXELS, build_prediction_view, read_text_request
from tests.support.errors import raises_code


def encode_picture(size, color="#808080"):
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "PNG")
    return buffer.getvalue()


def test_classes_are_listed_by_their_score():
    answer = {"version": "abc", "label": "7", "score": 0.75, "scores": {"1": 0.25, "7": 0.75}}
    view = build_prediction_view(answer, encode_picture((28, 28)))
    assert (view.headline, view.version, view.rows) == ("7 (75.0%)", "abc", (("7", "75.0%"), ("1", "25.0%")))
    with Image.open(io.BytesIO(view.picture)) as shown:
        assert shown.size == (28, 28)


def test_boxes_are_drawn_in_a_picture_that_is_scaled_down():
    box = {"label": "cola", "score": 0.9, "x": 200, "y": 200, "width": 400, "height": 400}
    view = build_prediction_view({"version": "v", "boxes": [box]}, encode_picture((1280, 1280)))
    with Image.open(io.BytesIO(view.picture)) as shown:
        assert shown.size == (MAX_SHOWN_PIXELS, MAX_SHOWN_PIXELS)
        assert shown.getpixel((100, 200)) != (128, 128, 128) and shown.getpixel((50, 50)) == (128, 128, 128)
    assert view.headline == "1 found" and view.rows == (("cola", "90.0%"),)


def test_numbers_have_their_interval_and_texts_what_may_come_next():
    number = build_prediction_view({"version": "v", "value": 3.25, "low": 3.0, "high": None}, None)
    assert number.headline == "3.25" and [value for _, value in number.rows] == ["3", "-"] and number.picture is None
    following = {"version": "v", "next": [{"character": "e", "probability": 0.5, "nats": 0.7}], "nats_per_token": None}
    assert build_prediction_view(following, None).headline == "next: 'e'"


@pytest.mark.parametrize("side", [10_000, 60_000], ids=["too many pixels", "far too many pixels"])
def test_a_picture_that_cannot_be_shown_does_not_hide_the_answer(side):
    answer = {"version": "v", "label": "7", "score": 1.0, "scores": {"7": 1.0}}
    assert build_prediction_view(answer, b"no picture").picture is None
    content = bytearray(encode_picture((1, 1)))
    content[16:24] = struct.pack(">2I", side, side)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    assert build_prediction_view(answer, bytes(content)).picture is None


def test_rows_are_json_objects_and_texts_are_as_they_are():
    assert json.loads(read_text_request('{"x": 1}', is_row=True)) == {"row": {"x": 1}}
    assert json.loads(read_text_request('{"x": 1}', is_row=False)) == {"text": '{"x": 1}'}
    assert read_text_request("  ", is_row=False) == b""


@pytest.mark.parametrize("text", ["x", "[1]", "3", "{"])
def test_other_rows_are_refused(text):
    with raises_code("row-invalid"):
        read_text_request(text, is_row=True)
