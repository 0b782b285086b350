"""JSON decoded into dataclasses: what does not fit is refused in a sentence with its place."""

from dataclasses import dataclass

import pytest

from equipoise.number_bounds import PositiveNumber
from equipoise.storage.json_decoding import decode_json_bytes, decode_json_value
from tests.support.errors import raises_code

OPTIONS = {"code": "file-damaged", "problem": "cannot read x"}


@dataclass(frozen=True)
class Part:
    """Part with a bound."""

    size: PositiveNumber


@dataclass(frozen=True)
class Whole:
    """Parts by number."""

    parts: dict[int, Part]
    name: str = ""


def test_keys_are_converted_and_unknown_ones_ignored():
    content = b'{"parts": {"3": {"size": 1.5, "more": 1}}, "added later": []}'
    assert decode_json_bytes(content, Whole, **OPTIONS) == Whole({3: Part(1.5)})


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ({"parts": {"1": {"size": 0}}}, "parts[...].size: expected `float` > 0"),
        ({"parts": 1}, "parts: expected `object`, got `int`"),
        ({}, "object missing required field `parts`"),
        ([], "expected `object`, got `array`"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(contents, reason):
    with raises_code("file-damaged", f"cannot read x: {reason}") as raised:
        decode_json_value(contents, Whole, **OPTIONS, remedy="restore it")
    assert raised.value.remedy == "restore it"


@pytest.mark.parametrize("content", [b"", b"{", b'{"parts": {"1": {"size": NaN}}}', b"[" * 100_000, b"\xff"])
def test_what_is_no_json_is_refused(content):
    with raises_code("file-damaged", "cannot read x: it is not valid JSON (") as raised:
        decode_json_bytes(content, Whole, **OPTIONS, remedy="restore it")
    assert raised.value.remedy == "restore it"
