"""The Open Inference Protocol, version 2: tensors in and out of a body, as JSON or as raw bytes behind it.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol, with Triton's extension for
binary tensors: the body is JSON and then the tensors' bytes in order, and a header says where JSON ends.
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
    """What a client asks: tensors by name, and which come back how."""

    request_id: str | None
    inputs: dict[str, AnyArray]
    outputs: dict[str, bool] | None
    """names wanted, and whether as bytes; all of them if None"""
    binary_by_default: bool = False
    """how those come back for which nothing is said"""
    parameters: dict[str, Any] = field(default_factory=dict)


def parse_inference_request(body: bytes, json_length_header: str | None) -> InferenceTensors:
    """The request in a body, of which `header` says how many bytes are JSON."""
    size = parse_json_length(body, json_length_header)
    request = parse_json_object(body[:size])
    parameters = require_object(request.get("parameters", {}), "parameters")
    inputs = require_list(request.get("inputs"), "inputs")
    if not inputs:
        raise RequestRejected(400, "the request holds no inputs: give at least one")
    found: dict[str, AnyArray] = {}
    rest = memoryview(body)[size:]
    for one in inputs:
        name, array, rest = parse_tensor(require_object(one, "an input"), rest)
        if name in found:
            raise RequestRejected(400, f"the input {name!r} is there twice")
        found[name] = array
    if len(rest):
        raise RequestRejected(
            400, f"{len(rest)} bytes follow the last tensor: binary_data_size does not add up to the body"
        )
    binary = parameters.get("binary_data_output", False) is True
    return InferenceTensors(
        parse_request_id(request), found, parse_requested_outputs(request, binary), binary, parameters
    )


def parse_raw_tensor(body: bytes, name: str, datatype: str, shape: Sequence[int]) -> InferenceTensors:
    """A body that is nothing but one tensor, of a shape whose first side is open."""
    item = np.dtype(NUMPY_TYPES[datatype]).itemsize * math.prod(shape[1:])
    if not body or len(body) % item:
        raise RequestRejected(400, f"a raw body must hold whole items of {item} bytes for {name}, got {len(body)}")
    array = np.frombuffer(body, NUMPY_TYPES[datatype]).reshape(-1, *shape[1:])
    return InferenceTensors(None, {name: array}, None, binary_by_default=True)


def parse_json_length(body: bytes, json_length_header: str | None) -> int:
    """How many bytes of the body are JSON."""
    if json_length_header is None:
        return len(body)
    if (
        not json_length_header.isascii()
        or not json_length_header.isdigit()
        or len(json_length_header) > 12
        or int(json_length_header) > len(body)
    ):
        raise RequestRejected(
            400,
            f"{JSON_LENGTH_HEADER} must be a number of bytes up to the "
            f"body's {len(body)}, got {json_length_header[:40]!r}",
        )
    return int(json_length_header)


def parse_json_object(text: bytes) -> dict[str, Any]:
    """JSON that is an object, without the numbers that JSON does not have."""

    def constant(name: str) -> None:
        raise ValueError(f"{name} is no number in JSON")

    try:
        found = json.loads(text, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise RequestRejected(400, f"the body is not JSON ({str(error)[:120]})") from None
    return require_object(found, "the body")


def require_object(value: Any, description: str) -> dict[str, Any]:
    """An object of JSON, or a refusal."""
    if not isinstance(value, dict):
        raise RequestRejected(400, f"{description} must be a JSON object, got {json_type_name(value)}")
    return value


def require_list(value: Any, description: str) -> list[Any]:
    """A short list of JSON, or a refusal."""
    if not isinstance(value, list):
        raise RequestRejected(400, f"{description} must be a list, got {json_type_name(value)}")
    if len(value) > MAX_TENSORS:
        raise RequestRejected(400, f"{description} must be {MAX_TENSORS} at most, got {len(value)}")
    return value


def json_type_name(value: Any) -> str:
    """What JSON calls a value."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")


def parse_request_id(request: dict[str, Any]) -> str | None:
    """The client's own name for the request."""
    found = request.get("id")
    if found is not None and not isinstance(found, str):
        raise RequestRejected(400, f"id must be text, got {json_type_name(found)}")
    return found or None


def parse_requested_outputs(request: dict[str, Any], binary_by_default: bool) -> dict[str, bool] | None:
    """The outputs asked for, and whether as bytes."""
    if request.get("outputs") is None:
        return None
    found: dict[str, bool] = {}
    for one in require_list(request["outputs"], "outputs"):
        output = require_object(one, "an output")
        name, parameters = output.get("name"), require_object(output.get("parameters", {}), "parameters")
        if not isinstance(name, str):
            raise RequestRejected(400, f"an output's name must be text, got {json_type_name(name)}")
        if name in found:
            raise RequestRejected(400, f"the output {name!r} is asked for twice")
        found[name] = parameters.get("binary_data", binary_by_default) is True
    return found or None


def parse_tensor(tensor_json: dict[str, Any], remaining: memoryview) -> tuple[str, AnyArray, memoryview]:
    """An input's name, its values, and the bytes left for others."""
    name, datatype = tensor_json.get("name"), tensor_json.get("datatype")
    if not isinstance(name, str):
        raise RequestRejected(400, f"an input's name must be text, got {json_type_name(name)}")
    if not isinstance(datatype, str) or (datatype not in NUMPY_TYPES and datatype != "BYTES"):
        raise RequestRejected(400, f"{name!r} has no known datatype: {str(datatype)[:40]!r}")
    sides = parse_shape(tensor_json.get("shape"), name)
    size = require_object(tensor_json.get("parameters", {}), "parameters").get("binary_data_size")
    if size is None:
        return name, tensor_from_json(tensor_json.get("data"), datatype, sides, name), remaining
    if "data" in tensor_json:
        raise RequestRejected(400, f"{name!r} has both data and binary_data_size: give one")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(remaining):
        raise RequestRejected(
            400, f"binary_data_size of {name!r} must be from 0 to the {len(remaining)} bytes left, got {size!r}"
        )
    return name, tensor_from_bytes(bytes(remaining[:size]), datatype, sides, name), remaining[size:]


def parse_shape(value: Any, name: str) -> list[int]:
    """The sides of a tensor, none of them absurd."""
    whole = isinstance(value, list) and len(value) <= MAX_TENSOR_RANK
    if not whole or not all(isinstance(side, int) and not isinstance(side, bool) and side >= 0 for side in value):
        raise RequestRejected(400, f"the shape of {name!r} must be up to {MAX_TENSOR_RANK} numbers of at least 0")
    if math.prod(value) > MAX_TENSOR_ELEMENTS or max(value, default=0) > MAX_TENSOR_ELEMENTS:
        raise tensor_is_too_large(name, MAX_TENSOR_ELEMENTS)
    return list(value)


def tensor_from_json(data: Any, datatype: str, dimensions: list[int], name: str) -> AnyArray:
    """Values that came as JSON, flat or nested."""
    if datatype == "BYTES":
        texts = flatten_lists(data)
        if not all(isinstance(text, str) for text in texts) or len(texts) != math.prod(dimensions):
            raise RequestRejected(400, f"{name!r} must hold {math.prod(dimensions)} texts")
        try:
            coded: list[Any] = [text.encode() for text in texts]
        except UnicodeEncodeError:
            raise RequestRejected(400, f"{name!r} holds what is no text") from None
        return np.array([*coded, None], object)[:-1].reshape(dimensions)
    leaves = flatten_lists(data)
    if len(leaves) != math.prod(dimensions) or not {type(one) for one in leaves} <= {int, float, bool}:
        raise RequestRejected(400, f"{name!r} must hold {math.prod(dimensions)} numbers, in lists of equal length")
    try:
        found = np.array(data)
    except (ValueError, OverflowError, RecursionError):
        found = np.array(None)
    allowed = {"BOOL": "b", "FP16": "iuf", "FP32": "iuf", "FP64": "iuf"}.get(datatype, "iu")
    if found.size and found.dtype.kind not in allowed:
        raise RequestRejected(400, f"the data of {name!r} must be numbers of {datatype}, in lists of equal length")
    if found.size != math.prod(dimensions) or (found.ndim > 1 and list(found.shape) != dimensions):
        raise RequestRejected(400, f"{name!r} has the shape {dimensions} and {found.size} values")
    return cast_exactly(found, datatype, name).reshape(dimensions)


def cast_exactly(values: AnyArray, datatype: str, name: str) -> AnyArray:
    """The values in their type, of which none may change."""
    wanted_type = np.dtype(NUMPY_TYPES[datatype])
    if wanted_type.kind in "iu" and values.size:
        ends = np.iinfo(wanted_type)
        if values.min() < ends.min or values.max() > ends.max:
            raise RequestRejected(400, f"{name!r} holds values that {datatype} does not have")
    with np.errstate(over="ignore"):
        made = values.astype(wanted_type)
    if wanted_type.kind == "f" and not np.isfinite(made).all():
        raise RequestRejected(400, f"{name!r} holds values that are not finite in {datatype}")
    return made


def flatten_lists(data: Any) -> list[Any]:
    """The leaves of nested lists; what is nested deeper than any tensor is left as it is."""
    found = data if isinstance(data, list) else [data]
    for _ in range(MAX_TENSOR_RANK):
        if not any(isinstance(one, list) for one in found):
            break
        found = [leaf for one in found for leaf in (one if isinstance(one, list) else [one])]
    return found


def tensor_from_bytes(data: bytes, datatype: str, dimensions: list[int], name: str) -> AnyArray:
    """Values that came as bytes, little end first."""
    if datatype == "BYTES":
        return np.array([*split_byte_strings(data, math.prod(dimensions), name), None], object)[:-1].reshape(dimensions)
    wanted_type = np.dtype(NUMPY_TYPES[datatype]).newbyteorder("<")
    expected = math.prod(dimensions) * wanted_type.itemsize
    if len(data) != expected:
        raise RequestRejected(400, f"{name!r} of {datatype} {dimensions} takes {expected} bytes, got {len(data)}")
    if datatype == "BOOL":
        return np.frombuffer(data, np.uint8).astype(bool).reshape(dimensions)
    found = np.frombuffer(data, wanted_type).reshape(dimensions)
    if wanted_type.kind == "f" and not np.isfinite(found).all():
        raise RequestRejected(400, f"{name!r} holds values that are not finite")
    return found


def split_byte_strings(data: bytes, count: int, name: str) -> list[bytes]:
    """Byte strings, each behind its length in four bytes."""
    found, place = [], 0
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "little")
        place += 4
        if place + size > len(data):
            raise RequestRejected(400, f"the lengths within {name!r} lead beyond its bytes")
        found.append(data[place : place + size])
        place += size
    if len(found) != count:
        raise RequestRejected(400, f"{name!r} should hold {count} byte strings, got {len(found)}")
    return found


def tensor_to_bytes(array: AnyArray) -> bytes:
    """Values as bytes, little end first; objects are byte strings behind their lengths."""
    if array.dtype == object:
        return b"".join(len(one).to_bytes(4, "little") + one for one in array.flat)
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def datatype_name(array: AnyArray) -> str:
    """The protocol's name of an array's type."""
    return "BYTES" if array.dtype == object else next(n for n, kind_ in NUMPY_TYPES.items() if array.dtype == kind_)


def build_inference_response(
    metadata: dict[str, Any], outputs: dict[str, AnyArray], request: InferenceTensors
) -> tuple[bytes, int | None]:
    """A body that answers `asked`, and how many of its bytes are JSON if others follow."""
    names = request.outputs if request.outputs is not None else dict.fromkeys(outputs, request.binary_by_default)
    if unknown := [name for name in names if name not in outputs]:
        raise RequestRejected(400, f"there is no output {unknown[0]!r}: there are {', '.join(outputs)}")
    told, tail = [], []
    for name, binary in names.items():
        array = outputs[name]
        one: dict[str, Any] = {"name": name, "datatype": datatype_name(array), "shape": list(array.shape)}
        if binary:
            tail.append(tensor_to_bytes(array))
            one["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            values = array.ravel().tolist()
            one["data"] = [value.decode() for value in values] if array.dtype == object else values
        told.append(one)
    whole = metadata | ({"id": request.request_id} if request.request_id else {}) | {"outputs": told}
    text = json.dumps(whole, allow_nan=False, separators=(",", ":")).encode()
    return (b"".join([text, *tail]), len(text)) if tail else (text, None)
