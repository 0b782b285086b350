"""Requests of the Open Inference Protocol: their JSON, the order of their tensors, and what they ask for."""

import json

import numpy as np
import pytest

from services.http.tensor_codec import parse_inference_request, parse_json_object, parse_raw_tensor
from tests.support.rejections import raises_rejection


def build_tensor(**changes):
    return {"name": "x", "datatype": "INT16", "shape": [2], "data": [1, -2]} | changes


def build_binary_tensor(name, size, **changes):
    tensor = build_tensor(name=name, parameters={"binary_data_size": size}, **changes)
    del tensor["data"]
    return tensor


def parse_request(*inputs, **fields):
    return parse_inference_request(json.dumps({"inputs": list(inputs)} | fields).encode(), None)


def parse_binary_request(tail, *inputs, **fields):
    header = json.dumps({"inputs": list(inputs)} | fields).encode()
    return parse_inference_request(header + tail, str(len(header)))


def test_request_without_options_asks_for_all_outputs_as_json():
    request = parse_request(build_tensor())
    assert request.inputs["x"].tolist() == [1, -2] and request.inputs["x"].dtype == np.int16
    assert (request.request_id, request.outputs, request.binary_by_default, request.parameters) == (
        None,
        None,
        False,
        {},
    )


def test_binary_tensors_follow_the_json_in_the_order_of_the_inputs():
    first, second = np.array([300, -7], "<i2"), np.array([5, 6], "<i2")
    request = parse_binary_request(
        first.tobytes() + second.tobytes(),
        build_binary_tensor("a", 4),
        build_tensor(name="in json"),
        build_binary_tensor("b", 4),
        build_binary_tensor("empty", 0, shape=[0]),
    )
    assert {name: array.tolist() for name, array in request.inputs.items()} == {
        "a": [300, -7],
        "in json": [1, -2],
        "b": [5, 6],
        "empty": [],
    }


def test_bytes_after_the_last_tensor_are_rejected():
    with raises_rejection(400, "3 bytes"):
        parse_binary_request(bytes(7), build_binary_tensor("a", 4))
    with raises_rejection(400, "1 bytes"):
        parse_binary_request(b"1", build_tensor())


@pytest.mark.parametrize("size", [5, -1, True, "4", 4.0])
def test_binary_size_must_be_a_number_of_the_bytes_that_are_left(size):
    with raises_rejection(400, "'a'", "4 bytes left"):
        parse_binary_request(bytes(4), build_binary_tensor("a", size))


def test_input_has_data_or_a_binary_size_but_not_both():
    with raises_rejection(400, "'a'", "both"):
        parse_binary_request(bytes(4), build_binary_tensor("a", 4) | {"data": [1, 2]})
    with raises_rejection(400, "'x'"):
        parse_request({key: value for key, value in build_tensor().items() if key != "data"})
    assert parse_request(build_tensor(parameters={"binary_data_size": None})).inputs["x"].tolist() == [1, -2]


@pytest.mark.parametrize("count", [1, 16])
def test_request_holds_up_to_sixteen_inputs(count):
    inputs = [build_tensor(name=f"n{index}") for index in range(count)]
    assert list(parse_request(*inputs).inputs) == [f"n{index}" for index in range(count)]


def test_request_of_no_or_too_many_inputs_is_rejected():
    with raises_rejection(400, "at least one"):
        parse_request()
    with raises_rejection(400, "at most 16", "got 17"):
        parse_request(*(build_tensor(name=f"n{index}") for index in range(17)))


def test_two_inputs_or_outputs_of_one_name_are_rejected():
    with raises_rejection(400, "'x'", "twice"):
        parse_request(build_tensor(), build_tensor())
    with raises_rejection(400, "'y'", "twice"):
        parse_request(build_tensor(), outputs=[{"name": "y"}, {"name": "y"}])


@pytest.mark.parametrize(
    ("value", "json_type"),
    [
        (None, "nothing"),
        (True, "true or false"),
        (7, "a number"),
        (0.5, "a number"),
        ("s", "a string"),
        ({}, "an object"),
    ],
)
def test_value_that_must_be_a_list_is_rejected_with_its_type(value, json_type):
    with raises_rejection(400, "inputs", "a list", f"got {json_type}"):
        parse_inference_request(json.dumps({"inputs": value}).encode(), None)


@pytest.mark.parametrize(
    "fields",
    [
        {"parameters": [1]},
        {"outputs": ["y"]},
        {"outputs": [{"name": "y", "parameters": [1]}]},
        {"inputs": [build_tensor(parameters=[1])]},
        {"inputs": [[1]]},
    ],
)
def test_value_that_must_be_an_object_is_rejected_with_its_type(fields):
    json_type = "a string" if fields == {"outputs": ["y"]} else "a list"
    with raises_rejection(400, "JSON object", f"got {json_type}"):
        parse_request(**{"inputs": [build_tensor()]} | fields)


@pytest.mark.parametrize("fields", [{"name": None}, {"name": 7}, {"name": ["x"]}])
def test_name_of_an_input_or_output_must_be_a_string(fields):
    with raises_rejection(400, "input", "name"):
        parse_request(build_tensor(**fields))
    with raises_rejection(400, "output", "name"):
        parse_request(build_tensor(), outputs=[fields])


@pytest.mark.parametrize(("given", "expected"), [("7", "7"), ("", None), (None, None)])
def test_id_of_a_request_is_a_string_or_missing(given, expected):
    assert parse_request(build_tensor(), id=given).request_id == expected


@pytest.mark.parametrize("given", [7, 0, False, ["7"]])
def test_id_of_another_type_is_rejected(given):
    with raises_rejection(400, "id must be a string"):
        parse_request(build_tensor(), id=given)


@pytest.mark.parametrize("outputs", [None, []])
def test_request_without_outputs_asks_for_all(outputs):
    assert parse_request(build_tensor(), outputs=outputs).outputs is None


@pytest.mark.parametrize("default", [True, False])
def test_outputs_are_returned_as_bytes_if_they_or_the_request_say_so(default):
    outputs = [{"name": "plain"}, {"name": "json", "parameters": {"binary_data": False}}]
    outputs += [{"name": "bytes", "parameters": {"binary_data": True}}, {"name": "1", "parameters": {"binary_data": 1}}]
    parameters = {"binary_data_output": default, "other": "kept"}
    request = parse_request(build_tensor(), outputs=outputs, parameters=parameters)
    assert request.outputs == {"plain": default, "json": False, "bytes": True, "1": False}
    assert request.binary_by_default is default and request.parameters == parameters


def test_binary_output_must_be_requested_with_true():
    assert parse_request(build_tensor(), parameters={"binary_data_output": 1}).binary_by_default is False


def test_request_asks_for_up_to_sixteen_outputs():
    outputs = [{"name": f"y{index}"} for index in range(17)]
    assert len(parse_request(build_tensor(), outputs=outputs[:16]).outputs) == 16
    with raises_rejection(400, "at most 16", "got 17"):
        parse_request(build_tensor(), outputs=outputs)


@pytest.mark.parametrize("text", ["0", "6", "000000000006"])
def test_header_gives_the_length_of_the_json(text):
    with raises_rejection(400, "JSON" if int(text) == 0 else "inputs"):
        parse_inference_request(b'{   } {"no": "json"}', text)


@pytest.mark.parametrize("text", ["21", "0000000000006", "", "-1", "+6", " 6", "1_0", "6.0", "\u0666", "\u00b2"])
def test_length_of_the_json_is_a_short_number_within_the_body(text):
    with raises_rejection(400, "inference-header-content-length", "20"):
        parse_inference_request(b'{   } {"no": "json"}', text)


def test_long_length_of_the_json_is_cut_in_the_message():
    with raises_rejection(400) as raised:
        parse_inference_request(b"{}", "8" * 5000)
    assert raised.value.message.count("8") == 40


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"a": 1} {}',
        b"\xff{}",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["empty", "cut off", "two", "not UTF-8", "NaN", "infinity", "huge integer", "deep"],
)
def test_body_that_is_not_json_is_rejected(text):
    with raises_rejection(400, "not JSON") as raised:
        parse_json_object(text)
    assert len(raised.value.message) < 150


@pytest.mark.parametrize(("text", "json_type"), [(b"[]", "a list"), (b"1", "a number"), (b'"{}"', "a string")])
def test_json_that_is_no_object_is_rejected(text, json_type):
    with raises_rejection(400, "the body", json_type):
        parse_json_object(text)


def test_json_object_is_parsed_as_by_the_standard_library():
    content = {"a": [1, 2.5, None, True], "é": {"nested": "text"}}
    assert parse_json_object(json.dumps(content).encode()) == content


@pytest.mark.parametrize("dtype", ["<f4", "<i8", "u1"])
@pytest.mark.parametrize("count", [1, 3])
def test_raw_body_is_one_tensor_of_as_many_items_as_fit(dtype, count):
    array = np.arange(count * 6).astype(dtype).reshape(count, 2, 3)
    datatype = {"<f4": "FP32", "<i8": "INT64", "u1": "UINT8"}[dtype]
    request = parse_raw_tensor(array.tobytes(), "pictures", datatype, [-1, 2, 3])
    np.testing.assert_array_equal(request.inputs["pictures"], array, strict=True)
    assert request.outputs is None and request.binary_by_default and request.request_id is None


@pytest.mark.parametrize("size", [0, 23, 25, 47])
def test_raw_body_of_an_incomplete_item_is_rejected(size):
    with raises_rejection(400, "pictures", "multiple of 24", f"got {size}"):
        parse_raw_tensor(bytes(size), "pictures", "FP32", [-1, 2, 3])
