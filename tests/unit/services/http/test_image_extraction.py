"""The image in a body: the body itself, base64 in JSON, or the file of a form."""

import asyncio
import base64
import json

import pytest

from services.http.request_body import decode_base64, extract_image
from tests.support.asgi import build_request
from tests.support.rejections import raises_rejection

IMAGE = bytes(range(256)) * 3
BOUNDARY = "frontier"
AS_FORM = f"multipart/form-data; boundary={BOUNDARY}"


def extract(body, content_type=None):
    headers = {} if content_type is None else {"content_type": content_type}
    return asyncio.run(extract_image(build_request(**headers), body))


def build_form(*files, fields=0):
    parts = [f'name="field{index}"\r\n\r\nvalue'.encode() for index in range(fields)]
    parts += [b'name="any"; filename="a.png"\r\ncontent-type: image/png\r\n\r\n' + content for content in files]
    lines = [b"--" + BOUNDARY.encode() + b"\r\ncontent-disposition: form-data; " + part + b"\r\n" for part in parts]
    return b"".join(lines) + b"--" + BOUNDARY.encode() + b"--\r\n"


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "image/png",
        "image/x-anything",
        "IMAGE/JPEG; q=1",
        " image/webp ; a=b",
        "application/octet-stream",
        "application/x-www-form-urlencoded",
    ],
)
def test_body_is_the_image(content_type):
    assert extract(IMAGE, content_type) == IMAGE
    with raises_rejection(400, "no image"):
        extract(b"", content_type)


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8"])
def test_image_is_base64_in_json(content_type):
    body = json.dumps({"image": base64.b64encode(IMAGE).decode(), "other": 1}).encode()
    assert extract(body, content_type) == IMAGE
    for wrong in (b"{}", b'{"image": null}', b'{"image": 5}', b'{"image": ""}', b"[]", b"{"):
        with raises_rejection(400):
            extract(wrong, content_type)


@pytest.mark.parametrize("text", ["***", "QUJD*", "QUI", "QU JD", "QUJD\n", "é", "QUJD=QUJD"])
def test_text_that_is_not_base64_is_rejected(text):
    with raises_rejection(400, "base64"):
        decode_base64(text)


@pytest.mark.parametrize("value", [None, 5, True, ["QUJD"], {"image": "QUJD"}])
def test_image_in_json_must_be_a_string(value):
    with raises_rejection(400, "image"):
        decode_base64(value)


def test_base64_is_decoded_to_its_bytes():
    assert decode_base64("QUJD") == b"ABC" and decode_base64("+/8=") == b"\xfb\xff"


@pytest.mark.parametrize("fields", [0, 1, 8])
def test_form_holds_one_file_under_any_name(fields):
    assert extract(build_form(IMAGE, fields=fields), AS_FORM) == IMAGE


def test_large_file_of_a_form_is_read_and_closed():
    image = IMAGE * 4000  # kept on disk while the form is parsed; an unclosed file is a warning, and so an error
    assert extract(build_form(image), AS_FORM) == image


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (build_form(fields=1), AS_FORM),
        (build_form(), AS_FORM),
        (build_form(IMAGE, IMAGE), AS_FORM),
        (build_form(IMAGE, fields=9), AS_FORM),
        (build_form(b""), AS_FORM),
        (build_form(IMAGE), "multipart/form-data"),
        (build_form(IMAGE), f"{AS_FORM}; charset=undefined"),
        (b"", AS_FORM),
        (b"no form", AS_FORM),
    ],
    ids=["no file", "nothing", "two files", "nine fields", "empty file", "no boundary", "charset", "empty", "text"],
)
def test_form_without_exactly_one_file_is_rejected(body, content_type):
    with raises_rejection(400):
        extract(body, content_type)


@pytest.mark.parametrize("content_type", ["text/csv", "application/pdf", "multipart/mixed", "json", "video/png"])
def test_unknown_content_type_is_rejected(content_type):
    with raises_rejection(415, content_type, "image/png"):
        extract(IMAGE, f"{content_type}; a=b")
