"""Tensors in bodies of the Open Inference Protocol, version 2: as JSON, or as raw bytes after the JSON.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol, with Triton's extension for
binary tensors: the body is JSON followed by the tensors' bytes in order, and a header gives the length of the JSON.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from equipoise.type_aliases import AnyArray
from services.http.errors import RequestRejected, tensor_is_too_large

JSON_LENGTH_HEADER = "inference-header-content-length"
MAX_TENSOR_RANK, MAX_TENSOR_ELEMENTS, MAX_TENSORS = 8, 1 << 26, 16
NUMPY_TYPES: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}


@dataclass(frozen=True)
class InferenceTensors:
    """Content of an inference request: input tensors by name, and which outputs to return in which form."""

    request_id: str | None
    inputs: dict[str, AnyArray]
    outputs: dict[str, bool] | None
    """names of the requested outputs, True for those to return as bytes; None for all outputs"""
    binary_by_default: bool = False
    """whether outputs are returned as bytes unless requested otherwise"""
    parameters: dict[str, Any] = field(default_factory=dict)


def parse_inference_request(body: bytes, json_length_header: str | None) -> InferenceTensors:
    """Parse the body of an inference request, of which the header says how many bytes are JSON."""
    size = parse_json_length(body, json_length_header)
    request = parse_json_object(body[:size])
    parameters = require_object(request.get("parameters", {}), "parameters")
    tensors = require_list(request.get("inputs"), "inputs")
    if not tensors:
        raise RequestRejected(400, "the request holds no inputs: give at least one")
    inputs: dict[str, AnyArray] = {}
    remaining = memoryview(body)[size:]
    for tensor in tensors:
        name, array, remaining = parse_tensor(require_object(tensor, "an input"), remaining)
        if name in inputs:
            raise RequestRejected(400, f"the input {name!r} is given twice")
        inputs[name] = array
    if len(remaining):
        why = "the sum of binary_data_size does not match the body"
        raise RequestRejected(400, f"{len(remaining)} bytes follow the last tensor: {why}")
    binary = parameters.get("binary_data_output", False) is True
    outputs = parse_requested_outputs(request, binary)
    return InferenceTensors(parse_request_id(request), inputs, outputs, binary, parameters)


def parse_raw_tensor(body: bytes, name: str, datatype: str, shape: Sequence[int]) -> InferenceTensors:
    """Parse a body that is the bytes of one tensor, whose first dimension follows from the length of the body."""
    item = np.dtype(NUMPY_TYPES[datatype]).itemsize * math.prod(shape[1:])
    if not body or len(body) % item:
        why = f"{name} takes a multiple of {item} bytes, got {len(body)}"
        raise RequestRejected(400, f"cannot read the raw body: {why}")
    array = np.frombuffer(body, NUMPY_TYPES[datatype]).reshape(-1, *shape[1:])
    return InferenceTensors(None, {name: array}, None, binary_by_default=True)


def parse_json_length(body: bytes, json_length_header: str | None) -> int:
    """Return how many bytes of the body are JSON: as many as the header says, or all of them without it."""
    if json_length_header is None:
        return len(body)
    is_short_number = json_length_header.isascii() and json_length_header.isdigit() and len(json_length_header) <= 12
    if not is_short_number or int(json_length_header) > len(body):
        allowed = f"a number of bytes up to the body's {len(body)}"
        raise RequestRejected(400, f"{JSON_LENGTH_HEADER} must be {allowed}, got {json_length_header[:40]!r}")
    return int(json_length_header)


def parse_json_object(text: bytes) -> dict[str, Any]:
    """Parse JSON that is an object; NaN and infinities, which JSON does not have, are rejected."""

    def reject_constant(name: str) -> None:
        raise ValueError(f"{name} is not a JSON number")

    try:
        content = json.loads(text, parse_constant=reject_constant)
    except (ValueError, RecursionError) as error:  # of the parser: bad syntax, encoding or nesting, huge integers, NaN
        raise RequestRejected(400, f"the body is not JSON ({str(error)[:120]})") from None
    return require_object(content, "the body")


def require_object(value: Any, description: str) -> dict[str, Any]:
    """Return a parsed JSON value that must be an object; reject the request if it is not."""
    if not isinstance(value, dict):
        raise RequestRejected(400, f"{description} must be a JSON object, got {json_type_name(value)}")
    return value


def require_list(value: Any, description: str) -> list[Any]:
    """Return a parsed JSON value that must be a list of at most `MAX_TENSORS`; reject the request if it is not."""
    if not isinstance(value, list):
        raise RequestRejected(400, f"{description} must be a list, got {json_type_name(value)}")
    if len(value) > MAX_TENSORS:
        raise RequestRejected(400, f"{description} must be at most {MAX_TENSORS}, got {len(value)}")
    return value


def json_type_name(value: Any) -> str:
    """Return the JSON type of a parsed value, as it reads in a message."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")


def parse_request_id(request: dict[str, Any]) -> str | None:
    """Return the id that the client gave the request, or None."""
    request_id = request.get("id")
    if request_id is not None and not isinstance(request_id, str):
        raise RequestRejected(400, f"id must be a string, got {json_type_name(request_id)}")
    return request_id or None


def parse_requested_outputs(request: dict[str, Any], binary_by_default: bool) -> dict[str, bool] | None:
    """Return the requested outputs, True for those to return as bytes; None for all outputs."""
    if request.get("outputs") is None:
        return None
    outputs: dict[str, bool] = {}
    for value in require_list(request["outputs"], "outputs"):
        output = require_object(value, "an output")
        name, parameters = output.get("name"), require_object(output.get("parameters", {}), "parameters")
        if not isinstance(name, str):
            raise RequestRejected(400, f"an output's name must be a string, got {json_type_name(name)}")
        if name in outputs:
            raise RequestRejected(400, f"the output {name!r} is requested twice")
        outputs[name] = parameters.get("binary_data", binary_by_default) is True
    return outputs or None


def parse_tensor(tensor_json: dict[str, Any], remaining: memoryview) -> tuple[str, AnyArray, memoryview]:
    """Return an input's name, its values, and the bytes left for the next inputs."""
    name, datatype = tensor_json.get("name"), tensor_json.get("datatype")
    if not isinstance(name, str):
        raise RequestRejected(400, f"an input's name must be a string, got {json_type_name(name)}")
    if not isinstance(datatype, str) or (datatype not in NUMPY_TYPES and datatype != "BYTES"):
        raise RequestRejected(400, f"{name!r} has an unknown datatype: {str(datatype)[:40]!r}")
    dimensions = parse_shape(tensor_json.get("shape"), name)
    size = require_object(tensor_json.get("parameters", {}), "parameters").get("binary_data_size")
    if size is None:
        return name, tensor_from_json(tensor_json.get("data"), datatype, dimensions, name), remaining
    if "data" in tensor_json:
        raise RequestRejected(400, f"{name!r} has both data and binary_data_size: give one")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(remaining):
        allowed = f"from 0 to the {len(remaining)} bytes left"
        raise RequestRejected(400, f"binary_data_size of {name!r} must be {allowed}, got {size!r}")
    return name, tensor_from_bytes(bytes(remaining[:size]), datatype, dimensions, name), remaining[size:]


def parse_shape(value: Any, name: str) -> list[int]:
    """Return the dimensions of a tensor, within the limits on rank and number of elements."""
    is_short_list = isinstance(value, list) and len(value) <= MAX_TENSOR_RANK
    if not is_short_list or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value):
        allowed = f"a list of at most {MAX_TENSOR_RANK} integers of at least 0"
        raise RequestRejected(400, f"the shape of {name!r} must be {allowed}")
    if math.prod(value) > MAX_TENSOR_ELEMENTS or max(value, default=0) > MAX_TENSOR_ELEMENTS:
        raise tensor_is_too_large(name, MAX_TENSOR_ELEMENTS)
    return list(value)


def tensor_from_json(data: Any, datatype: str, dimensions: list[int], name: str) -> AnyArray:
    """Build a tensor from JSON values in a flat or nested list."""
    values, count = flatten_lists(data), math.prod(dimensions)
    if datatype == "BYTES":
        if not all(isinstance(text, str) for text in values) or len(values) != count:
            raise RequestRejected(400, f"{name!r} must hold {count} strings")
        try:
            encoded: list[Any] = [text.encode() for text in values]
        except UnicodeEncodeError:
            raise RequestRejected(400, f"{name!r} holds a string that is not valid Unicode") from None
        return np.array([*encoded, None], object)[:-1].reshape(dimensions)
    python_types = {type(value) for value in values}
    if len(values) != count or not python_types <= {int, float, bool}:
        raise RequestRejected(400, f"{name!r} must hold {count} numbers, in lists of equal length")
    # NumPy's own choice is floats for integers on both sides of 2**63, and objects for those from 2**64
    is_float = datatype.startswith("FP") and bool not in python_types
    number_type = np.float64 if is_float else np.uint64 if datatype == "UINT64" and python_types <= {int} else None
    try:
        array = np.array(data, number_type)
    except (ValueError, OverflowError, RecursionError):  # NumPy's, for lists of unequal length, depth or huge numbers
        array = np.array(None)
    allowed = {"BOOL": "b", "FP16": "iuf", "FP32": "iuf", "FP64": "iuf"}.get(datatype, "iu")
    if array.size and array.dtype.kind not in allowed:
        raise RequestRejected(400, f"the data of {name!r} must be numbers of type {datatype}, in lists of equal length")
    if array.size != count or (array.ndim > 1 and list(array.shape) != dimensions):
        raise RequestRejected(400, f"{name!r} declares the shape {dimensions} and holds {array.size} values")
    return cast_exactly(array, datatype, name).reshape(dimensions)


def cast_exactly(values: AnyArray, datatype: str, name: str) -> AnyArray:
    """Cast values to a datatype; reject the request if one is out of its range."""
    wanted_type = np.dtype(NUMPY_TYPES[datatype])
    if wanted_type.kind in "iu" and values.size:
        limits = np.iinfo(wanted_type)
        if values.min() < limits.min or values.max() > limits.max:
            raise RequestRejected(400, f"{name!r} holds values outside the range of {datatype}")
    with np.errstate(over="ignore"):
        array = values.astype(wanted_type)
    if wanted_type.kind == "f" and not np.isfinite(array).all():
        raise RequestRejected(400, f"{name!r} holds values that are not finite in {datatype}")
    return array


def flatten_lists(data: Any) -> list[Any]:
    """Return the leaves of nested lists; what is nested deeper than `MAX_TENSOR_RANK` stays a list."""
    values = data if isinstance(data, list) else [data]
    for _ in range(MAX_TENSOR_RANK):
        if not any(isinstance(value, list) for value in values):
            break
        values = [leaf for value in values for leaf in (value if isinstance(value, list) else [value])]
    return values


def tensor_from_bytes(data: bytes, datatype: str, dimensions: list[int], name: str) -> AnyArray:
    """Build a tensor from little-endian bytes."""
    if datatype == "BYTES":
        return np.array([*split_byte_strings(data, math.prod(dimensions), name), None], object)[:-1].reshape(dimensions)
    wanted_type = np.dtype(NUMPY_TYPES[datatype]).newbyteorder("<")
    expected = math.prod(dimensions) * wanted_type.itemsize
    if len(data) != expected:
        raise RequestRejected(400, f"{name!r} of {datatype} {dimensions} takes {expected} bytes, got {len(data)}")
    if datatype == "BOOL":
        return np.frombuffer(data, np.uint8).astype(bool).reshape(dimensions)
    array = np.frombuffer(data, wanted_type).reshape(dimensions)
    if wanted_type.kind == "f" and not np.isfinite(array).all():
        raise RequestRejected(400, f"{name!r} holds values that are not finite")
    return array


def split_byte_strings(data: bytes, count: int, name: str) -> list[bytes]:
    """Split bytes into `count` byte strings, each preceded by its length in four bytes."""
    strings, start = [], 0
    while start < len(data):
        size = int.from_bytes(data[start : start + 4], "little")
        start += 4
        if start + size > len(data):
            raise RequestRejected(400, f"the string lengths in {name!r} exceed its bytes")
        strings.append(data[start : start + size])
        start += size
    if len(strings) != count:
        raise RequestRejected(400, f"{name!r} must hold {count} byte strings, got {len(strings)}")
    return strings


def tensor_to_bytes(array: AnyArray) -> bytes:
    """Return the values as little-endian bytes; byte strings are each preceded by their length in four bytes."""
    if array.dtype == object:
        return b"".join(len(string).to_bytes(4, "little") + string for string in array.flat)
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def datatype_name(array: AnyArray) -> str:
    """Return the protocol's name of an array's type."""
    return "BYTES" if array.dtype == object else next(n for n, kind in NUMPY_TYPES.items() if array.dtype == kind)


def build_inference_response(
    metadata: dict[str, Any], outputs: dict[str, AnyArray], request: InferenceTensors
) -> tuple[bytes, int | None]:
    """Build the body that answers a request, and the length of its JSON if tensor bytes follow it (None otherwise)."""
    names = request.outputs if request.outputs is not None else dict.fromkeys(outputs, request.binary_by_default)
    if unknown := [name for name in names if name not in outputs]:
        raise RequestRejected(400, f"there is no output {unknown[0]!r}: the model has {', '.join(outputs)}")
    tensors, tail = [], []
    for name, binary in names.items():
        array = outputs[name]
        tensor: dict[str, Any] = {"name": name, "datatype": datatype_name(array), "shape": list(array.shape)}
        if binary:
            tail.append(tensor_to_bytes(array))
            tensor["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            values = array.ravel().tolist()
            tensor["data"] = [value.decode() for value in values] if array.dtype == object else values
        tensors.append(tensor)
    response = metadata | ({"id": request.request_id} if request.request_id else {}) | {"outputs": tensors}
    text = json.dumps(response, allow_nan=False, separators=(",", ":")).encode()
    return (b"".join([text, *tail]), len(text)) if tail else (text, None)
