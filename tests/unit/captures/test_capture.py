"""The JSON of a capture keeps its form, and JSON that is not the metadata of its capture is never read as such."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.captures.capture import CaptureMetadata, CaptureName, parse_metadata

NAME = CaptureName("drift", 0.75, "0123456789abcdef", False)
METADATA = CaptureMetadata(
    id=NAME.id,
    at=1700000000.5,
    model="pets",
    version="v1",
    label="cat",
    score=0.75,
    scores={"cat": 0.75, "caf\udce9": 0.25},
    source=None,
    pool=NAME.pool,
    key=NAME.key,
    label_given=None,
)
CONTENTS = json.loads(METADATA.to_json_bytes())
HUGE_NUMBER = "9" * 400


def test_metadata_is_written_in_the_order_of_its_fields():
    text = METADATA.to_json_bytes().decode()
    assert text.startswith('{\n "id": "0123456789abcdef",\n "at": 1700000000.5,\n "model": "pets",\n')
    assert text.endswith('"source": null,\n "pool": "drift",\n "key": 0.75,\n "label_given": null\n}\n')


def test_metadata_is_read_as_it_was_written():
    assert parse_metadata(NAME, METADATA.to_json_bytes()) == METADATA
    labelled = replace(METADATA, label_given="caf\udce9")  # a folder name that is not UTF-8
    assert parse_metadata(NAME._replace(labelled=True), labelled.to_json_bytes()) == labelled
    assert parse_metadata(NAME, json.dumps(CONTENTS | {"added": [1]}).encode()) == METADATA


@pytest.mark.parametrize("name", CONTENTS)
def test_metadata_without_a_value_is_refused(name):
    contents = {key: value for key, value in CONTENTS.items() if key != name}
    assert parse_metadata(NAME, json.dumps(contents).encode()) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "f" * 16},
        {"pool": "usual"},
        {"key": 0.5},
        {"label_given": "cat"},
        {"label_given": 3},
        {"source": 3},
        {"model": None},
        {"at": "now"},
        {"at": True},
        {"score": None},
        {"scores": {"cat": "1"}},
        {"scores": [0.75]},
    ],
)
def test_metadata_of_another_capture_or_type_is_refused(changes):
    assert parse_metadata(NAME, json.dumps(CONTENTS | changes).encode()) is None


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", HUGE_NUMBER, f"-{HUGE_NUMBER}", "9" * 5000])
@pytest.mark.parametrize("field", ["at", "score", "scores"])
def test_number_that_is_not_finite_is_refused(field, number):
    text = json.dumps(CONTENTS | {field: {"cat": "NUMBER"} if field == "scores" else "NUMBER"})
    assert parse_metadata(NAME, text.replace('"NUMBER"', number).encode()) is None


@pytest.mark.parametrize("extra", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000])
def test_deeply_nested_metadata_is_refused(extra):
    assert parse_metadata(NAME, b'{"added": ' + extra.encode() + b"," + METADATA.to_json_bytes()[1:]) is None


def test_missing_file_is_no_capture():
    assert parse_metadata(NAME, None) is None and parse_metadata(NAME, b"") is None


@given(st.binary(max_size=200), st.integers(0, 400))
def test_bytes_that_are_not_metadata_never_raise(content, cut):
    damaged = METADATA.to_json_bytes()[:cut] + content + METADATA.to_json_bytes()[cut:]
    assert parse_metadata(NAME, content) is None
    assert parse_metadata(NAME, damaged) is None or isinstance(parse_metadata(NAME, damaged), CaptureMetadata)
