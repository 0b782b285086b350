"""Values of tensors in requests: ranges of each datatype, shapes, and bytes as Triton's client writes them."""

import json

import numpy as np
import pytest
import tritonclient.http as triton

from services.http.tensor_codec import NUMPY_TYPES, parse_inference_request
from tests.support.rejections import raises_rejection

INTEGER_TYPES = [name for name in NUMPY_TYPES if "INT" in name]
FLOAT_TYPES = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
MAX_ELEMENTS = 2**26


def parse_tensor(datatype, shape, data, **fields):
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "data": data} | fields
    return parse_inference_request(json.dumps({"inputs": [tensor]}).encode(), None).inputs["x"]


def parse_bytes(datatype, shape, tail):
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(tail)}}
    header = json.dumps({"inputs": [tensor]}).encode()
    return parse_inference_request(header + tail, str(len(header))).inputs["x"]


def send_with_triton(array, datatype, binary):
    infer_input = triton.InferInput("x", list(array.shape), datatype)
    infer_input.set_data_from_numpy(array, binary_data=binary)
    body, header_length = triton.InferenceServerClient.generate_request_body([infer_input])
    return parse_inference_request(body, None if header_length is None else str(header_length)).inputs["x"]


def build_extreme_values(datatype):
    """Return the smallest and the largest values of a datatype, and a few others, as (2, 3)."""
    dtype = np.dtype(NUMPY_TYPES[datatype])
    if dtype.kind == "b":
        return np.array([[True, False, True], [False, False, True]])
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return np.array([[limits.min, limits.max, 0], [1, 2, 100]], dtype)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("strings", [["wörd", "b" * 300, "c"], ["", "x", ""]])
def test_strings_of_triton_are_read(strings, binary):
    array = send_with_triton(np.array(strings, object).reshape(3, 1), "BYTES", binary)
    assert array.shape == (3, 1) and array.dtype == object
    assert array.ravel().tolist() == [text.encode() for text in strings]


@pytest.mark.parametrize("datatype", NUMPY_TYPES)
def test_binary_tensor_of_triton_is_read_bit_equal(datatype):
    array = build_extreme_values(datatype)
    np.testing.assert_array_equal(send_with_triton(array, datatype, binary=True), array, strict=True)


@pytest.mark.parametrize("datatype", NUMPY_TYPES)
def test_json_tensor_is_flat_or_nested(datatype):
    array = build_extreme_values(datatype)
    for data in (array.tolist(), array.ravel().tolist()):
        np.testing.assert_array_equal(parse_tensor(datatype, [2, 3], data), array, strict=True)


def test_integers_of_any_size_are_read_as_floating_point_numbers():
    values = parse_tensor("FP64", [3], [2**69, 1, -(2**64)])
    np.testing.assert_array_equal(values, np.array([2.0**69, 1.0, -(2.0**64)]), strict=True)
    with raises_rejection(400, "'x'", "FP64"):
        parse_tensor("FP64", [1], [10**400])


@pytest.mark.parametrize("datatype", INTEGER_TYPES)
def test_integers_beyond_the_range_are_rejected(datatype):
    limits = np.iinfo(NUMPY_TYPES[datatype])
    for value in (int(limits.min) - 1, int(limits.max) + 1):
        with raises_rejection(400, "'x'", datatype):
            parse_tensor(datatype, [2], [value, 0])


@pytest.mark.parametrize("datatype", INTEGER_TYPES)
@pytest.mark.parametrize("data", [[1.0, 2.0], [0.5, 1], [True, False], ["1", "2"], [None, None]])
def test_integer_tensor_takes_integers_only(datatype, data):
    with raises_rejection(400, "'x'"):
        parse_tensor(datatype, [2], data)


@pytest.mark.parametrize("datatype", FLOAT_TYPES)
def test_floating_point_tensor_takes_integers_and_fractions(datatype):
    values = parse_tensor(datatype, [3], [1, -0.1, 3])
    np.testing.assert_array_equal(values, np.array([1, -0.1, 3], FLOAT_TYPES[datatype]), strict=True)
    assert parse_tensor(datatype, [2], [1, 2]).dtype == FLOAT_TYPES[datatype]
    for data in ([True, False], [1.5, "2"], [{}, 1.0]):
        with raises_rejection(400, "'x'"):
            parse_tensor(datatype, [2], data)


@pytest.mark.parametrize(("datatype", "largest", "beyond"), [("FP16", 65519, 65520), ("FP32", 3.4028235e38, 3.41e38)])
def test_number_that_would_become_infinite_is_rejected(datatype, largest, beyond):
    assert np.isfinite(parse_tensor(datatype, [2], [largest, -largest])).all()
    for data in ([0, beyond], [-beyond, 0]):
        with raises_rejection(400, "'x'", "finite", datatype):
            parse_tensor(datatype, [2], data)
    with raises_rejection(400, "'x'", "finite"):
        parse_inference_request(b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [1e999]}]}', None)


@pytest.mark.parametrize("datatype", FLOAT_TYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bytes_of_numbers_that_are_not_finite_are_rejected(datatype, value):
    with raises_rejection(400, "'x'", "finite"):
        parse_bytes(datatype, [2], np.array([0, value], FLOAT_TYPES[datatype]).tobytes())


@pytest.mark.parametrize("data", [[1, 0], [True, 1], [True, 0.0], ["true", "false"]])
def test_boolean_tensor_takes_true_and_false_only(data):
    with raises_rejection(400, "'x'"):
        parse_tensor("BOOL", [2], data)


def test_every_byte_but_zero_is_true():
    assert parse_bytes("BOOL", [2, 2], bytes([0, 1, 2, 255])).tolist() == [[False, True], [True, True]]


@pytest.mark.parametrize("datatype", NUMPY_TYPES)
@pytest.mark.parametrize("missing", [-1, 1])
def test_number_of_bytes_must_be_that_of_the_shape(datatype, missing):
    size = 6 * np.dtype(NUMPY_TYPES[datatype]).itemsize
    with raises_rejection(400, "'x'", f"{size} bytes", f"got {size - missing}"):
        parse_bytes(datatype, [2, 3], bytes(size - missing))


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        ([3], [1, 2]),
        ([1], [1, 2]),
        ([2, 2], [1, 2, 3]),
        ([4], [[1, 2], [3, 4]]),
        ([4, 1], [[1, 2], [3, 4]]),
        ([2, 2], [[[1, 2], [3, 4]]]),
        ([3], [[1, 2], [3]]),
        ([3], [[1, 2], 3]),
        ([1], []),
        ([0], [1]),
        ([2], None),
        ([], [1, 2]),
        ([1], [[[[[[[[[[[[1]]]]]]]]]]]]),
    ],
)
@pytest.mark.parametrize("datatype", ["INT32", "FP32"])
def test_data_that_contradicts_the_shape_is_rejected(datatype, shape, data):
    with raises_rejection(400, "'x'"):
        parse_tensor(datatype, shape, data)


@pytest.mark.parametrize("datatype", ["UINT8", "FP32", "BOOL", "BYTES"])
@pytest.mark.parametrize(("shape", "data"), [([0], []), ([0, 3], []), ([2, 0], [[], []])])
def test_tensor_without_values_keeps_its_shape_and_type(datatype, shape, data):
    for array in (parse_tensor(datatype, shape, data), parse_bytes(datatype, shape, b"")):
        assert array.shape == tuple(shape)
        assert array.dtype == (object if datatype == "BYTES" else NUMPY_TYPES[datatype])


@pytest.mark.parametrize("data", [5, [5]])
def test_tensor_without_dimensions_is_one_value(data):
    np.testing.assert_array_equal(parse_tensor("INT8", [], data), np.array(5, np.int8), strict=True)


@pytest.mark.parametrize(
    "shape", [None, 2, "2", {}, [-1], [2, -1], [1.0], [True], ["1"], [[1]], [1] * 9], ids=lambda shape: repr(shape)
)
def test_shape_is_a_short_list_of_sizes(shape):
    with raises_rejection(400, "shape of 'x'", "at most 8"):
        parse_tensor("INT8", shape, [0])


def test_tensor_has_up_to_eight_dimensions():
    array = np.arange(4, dtype=np.int8).reshape(1, 2, 1, 1, 1, 1, 2, 1)
    np.testing.assert_array_equal(parse_tensor("INT8", list(array.shape), array.tolist()), array, strict=True)


@pytest.mark.parametrize("shape", [[MAX_ELEMENTS + 1], [2**13, 2**13 + 1], [0, MAX_ELEMENTS + 1], [1, 2**70, 0]])
def test_tensor_of_too_many_elements_is_rejected(shape):
    with raises_rejection(413, "'x'", MAX_ELEMENTS):
        parse_tensor("INT8", shape, [])


@pytest.mark.parametrize("shape", [[MAX_ELEMENTS], [2**13, 2**13]])
def test_tensor_of_the_most_elements_is_not_too_large(shape):
    with raises_rejection(400, f"{MAX_ELEMENTS} bytes"):  # because none of them is sent
        parse_bytes("INT8", shape, b"")
    assert parse_bytes("INT8", [0, MAX_ELEMENTS], b"").shape == (0, MAX_ELEMENTS)


@pytest.mark.parametrize("datatype", ["FP4", "int8", "", None, 7, ["INT8"]])
def test_unknown_datatype_is_rejected(datatype):
    with raises_rejection(400, "'x'", "datatype", str(datatype)):
        parse_tensor(datatype, [1], [1])


def test_long_datatype_is_cut_in_the_message():
    with raises_rejection(400) as raised:
        parse_tensor("Z" * 1000, [1], [1])
    assert raised.value.message.count("Z") == 40


@pytest.mark.parametrize("data", [["a"], ["a", "b", "c"], ["a", 1], ["a", None], None, [["a", ["b"], "c"]]])
def test_tensor_of_strings_holds_as_many_as_its_shape(data):
    with raises_rejection(400, "'x'", "2 strings"):
        parse_tensor("BYTES", [2], data)


def test_strings_may_be_nested_like_numbers():
    assert parse_tensor("BYTES", [2, 1], [["é"], ["b"]]).tolist() == [["é".encode()], [b"b"]]


def test_string_that_is_not_unicode_is_rejected():
    with raises_rejection(400, "'x'", "Unicode"):
        parse_tensor("BYTES", [1], ["\ud800"])


def test_byte_strings_must_end_with_the_bytes():
    one = b"\x03\x00\x00\x00abc"
    assert parse_bytes("BYTES", [2], one + one).tolist() == [b"abc", b"abc"]
    for tail in (one + one[:-1], one + one[:4], one + b"\x00\x00", one + b"\x00", one + b"\xff\xff\xff\xffabc"):
        with raises_rejection(400, "'x'", "exceed"):
            parse_bytes("BYTES", [2], tail)
    for count in (1, 3):
        with raises_rejection(400, "'x'", f"{count} byte strings", "got 2"):
            parse_bytes("BYTES", [count], one + one)
