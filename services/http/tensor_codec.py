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
from numpy.typing import NDArray

from services.http import errors
from services.http.errors import Refused

Array = NDArray[Any]

LENGTH = "inference-header-content-length"
MOST_RANK, MOST_ELEMENTS, MOST_TENSORS = 8, 1 << 26, 16
TYPES: dict[str, type[np.generic]] = {
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
class Sent:
    """What a client asks: tensors by name, and which come back how."""

    id: str | None
    inputs: dict[str, Array]
    outputs: dict[str, bool] | None
    """names wanted, and whether as bytes; all of them if None"""
    binary: bool = False
    """how those come back for which nothing is said"""
    parameters: dict[str, Any] = field(default_factory=dict)


def sent(body: bytes, header: str | None) -> Sent:
    """The request in a body, of which `header` says how many bytes are JSON."""
    size = boundary(body, header)
    request = parsed(body[:size])
    parameters = mapping(request.get("parameters", {}), "parameters")
    inputs = require_list(request.get("inputs"), "inputs")
    if not inputs:
        raise Refused(400, "the request holds no inputs: give at least one")
    found: dict[str, Array] = {}
    rest = memoryview(body)[size:]
    for one in inputs:
        name, array, rest = tensor(mapping(one, "an input"), rest)
        if name in found:
            raise Refused(400, f"the input {name!r} is there twice")
        found[name] = array
    if len(rest):
        raise Refused(400, f"{len(rest)} bytes follow the last tensor: binary_data_size does not add up to the body")
    binary = parameters.get("binary_data_output", False) is True
    return Sent(identity(request), found, wanted(request, binary), binary, parameters)


def raw(body: bytes, name: str, datatype: str, shape: Sequence[int]) -> Sent:
    """A body that is nothing but one tensor, of a shape whose first side is open."""
    item = np.dtype(TYPES[datatype]).itemsize * math.prod(shape[1:])
    if not body or len(body) % item:
        raise Refused(400, f"a raw body must hold whole items of {item} bytes for {name}, got {len(body)}")
    array = np.frombuffer(body, TYPES[datatype]).reshape(-1, *shape[1:])
    return Sent(None, {name: array}, None, binary=True)


def boundary(body: bytes, header: str | None) -> int:
    """How many bytes of the body are JSON."""
    if header is None:
        return len(body)
    if not header.isascii() or not header.isdigit() or len(header) > 12 or int(header) > len(body):
        raise Refused(400, f"{LENGTH} must be a number of bytes up to the body's {len(body)}, got {header[:40]!r}")
    return int(header)


def parsed(text: bytes) -> dict[str, Any]:
    """JSON that is an object, without the numbers that JSON does not have."""

    def constant(name: str) -> None:
        raise ValueError(f"{name} is no number in JSON")

    try:
        found = json.loads(text, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON ({str(error)[:120]})") from None
    return mapping(found, "the body")


def mapping(value: Any, what: str) -> dict[str, Any]:
    """An object of JSON, or a refusal."""
    if not isinstance(value, dict):
        raise Refused(400, f"{what} must be a JSON object, got {kind(value)}")
    return value


def require_list(value: Any, what: str) -> list[Any]:
    """A short list of JSON, or a refusal."""
    if not isinstance(value, list):
        raise Refused(400, f"{what} must be a list, got {kind(value)}")
    if len(value) > MOST_TENSORS:
        raise Refused(400, f"{what} must be {MOST_TENSORS} at most, got {len(value)}")
    return value


def kind(value: Any) -> str:
    """What JSON calls a value."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")


def identity(request: dict[str, Any]) -> str | None:
    """The client's own name for the request."""
    found = request.get("id")
    if found is not None and not isinstance(found, str):
        raise Refused(400, f"id must be text, got {kind(found)}")
    return found or None


def wanted(request: dict[str, Any], binary: bool) -> dict[str, bool] | None:
    """The outputs asked for, and whether as bytes."""
    if request.get("outputs") is None:
        return None
    found: dict[str, bool] = {}
    for one in require_list(request["outputs"], "outputs"):
        output = mapping(one, "an output")
        name, parameters = output.get("name"), mapping(output.get("parameters", {}), "parameters")
        if not isinstance(name, str):
            raise Refused(400, f"an output's name must be text, got {kind(name)}")
        if name in found:
            raise Refused(400, f"the output {name!r} is asked for twice")
        found[name] = parameters.get("binary_data", binary) is True
    return found or None


def tensor(one: dict[str, Any], rest: memoryview) -> tuple[str, Array, memoryview]:
    """An input's name, its values, and the bytes left for others."""
    name, datatype = one.get("name"), one.get("datatype")
    if not isinstance(name, str):
        raise Refused(400, f"an input's name must be text, got {kind(name)}")
    if not isinstance(datatype, str) or (datatype not in TYPES and datatype != "BYTES"):
        raise Refused(400, f"{name!r} has no known datatype: {str(datatype)[:40]!r}")
    sides = shape(one.get("shape"), name)
    size = mapping(one.get("parameters", {}), "parameters").get("binary_data_size")
    if size is None:
        return name, listed(one.get("data"), datatype, sides, name), rest
    if "data" in one:
        raise Refused(400, f"{name!r} has both data and binary_data_size: give one")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(rest):
        raise Refused(400, f"binary_data_size of {name!r} must be from 0 to the {len(rest)} bytes left, got {size!r}")
    return name, unpacked(bytes(rest[:size]), datatype, sides, name), rest[size:]


def shape(value: Any, name: str) -> list[int]:
    """The sides of a tensor, none of them absurd."""
    whole = isinstance(value, list) and len(value) <= MOST_RANK
    if not whole or not all(isinstance(side, int) and not isinstance(side, bool) and side >= 0 for side in value):
        raise Refused(400, f"the shape of {name!r} must be up to {MOST_RANK} numbers of at least 0")
    if math.prod(value) > MOST_ELEMENTS or max(value, default=0) > MOST_ELEMENTS:
        raise errors.tensor_is_too_large(name, MOST_ELEMENTS)
    return list(value)


def listed(data: Any, datatype: str, sides: list[int], name: str) -> Array:
    """Values that came as JSON, flat or nested."""
    if datatype == "BYTES":
        texts = flat(data)
        if not all(isinstance(text, str) for text in texts) or len(texts) != math.prod(sides):
            raise Refused(400, f"{name!r} must hold {math.prod(sides)} texts")
        try:
            coded: list[Any] = [text.encode() for text in texts]
        except UnicodeEncodeError:
            raise Refused(400, f"{name!r} holds what is no text") from None
        return np.array([*coded, None], object)[:-1].reshape(sides)
    leaves = flat(data)
    if len(leaves) != math.prod(sides) or not {type(one) for one in leaves} <= {int, float, bool}:
        raise Refused(400, f"{name!r} must hold {math.prod(sides)} numbers, in lists of equal length")
    try:
        found = np.array(data)
    except (ValueError, OverflowError, RecursionError):
        found = np.array(None)
    allowed = {"BOOL": "b", "FP16": "iuf", "FP32": "iuf", "FP64": "iuf"}.get(datatype, "iu")
    if found.size and found.dtype.kind not in allowed:
        raise Refused(400, f"the data of {name!r} must be numbers of {datatype}, in lists of equal length")
    if found.size != math.prod(sides) or (found.ndim > 1 and list(found.shape) != sides):
        raise Refused(400, f"{name!r} has the shape {sides} and {found.size} values")
    return cast(found, datatype, name).reshape(sides)


def cast(values: Array, datatype: str, name: str) -> Array:
    """The values in their type, of which none may change."""
    wanted_type = np.dtype(TYPES[datatype])
    if wanted_type.kind in "iu" and values.size:
        ends = np.iinfo(wanted_type)
        if values.min() < ends.min or values.max() > ends.max:
            raise Refused(400, f"{name!r} holds values that {datatype} does not have")
    with np.errstate(over="ignore"):
        made = values.astype(wanted_type)
    if wanted_type.kind == "f" and not np.isfinite(made).all():
        raise Refused(400, f"{name!r} holds values that are not finite in {datatype}")
    return made


def flat(data: Any) -> list[Any]:
    """The leaves of nested lists; what is nested deeper than any tensor is left as it is."""
    found = data if isinstance(data, list) else [data]
    for _ in range(MOST_RANK):
        if not any(isinstance(one, list) for one in found):
            break
        found = [leaf for one in found for leaf in (one if isinstance(one, list) else [one])]
    return found


def unpacked(data: bytes, datatype: str, sides: list[int], name: str) -> Array:
    """Values that came as bytes, little end first."""
    if datatype == "BYTES":
        return np.array([*texts(data, math.prod(sides), name), None], object)[:-1].reshape(sides)
    wanted_type = np.dtype(TYPES[datatype]).newbyteorder("<")
    expected = math.prod(sides) * wanted_type.itemsize
    if len(data) != expected:
        raise Refused(400, f"{name!r} of {datatype} {sides} takes {expected} bytes, got {len(data)}")
    if datatype == "BOOL":
        return np.frombuffer(data, np.uint8).astype(bool).reshape(sides)
    found = np.frombuffer(data, wanted_type).reshape(sides)
    if wanted_type.kind == "f" and not np.isfinite(found).all():
        raise Refused(400, f"{name!r} holds values that are not finite")
    return found


def texts(data: bytes, count: int, name: str) -> list[bytes]:
    """Byte strings, each behind its length in four bytes."""
    found, place = [], 0
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "little")
        place += 4
        if place + size > len(data):
            raise Refused(400, f"the lengths within {name!r} lead beyond its bytes")
        found.append(data[place : place + size])
        place += size
    if len(found) != count:
        raise Refused(400, f"{name!r} should hold {count} byte strings, got {len(found)}")
    return found


def packed(array: Array) -> bytes:
    """Values as bytes, little end first; objects are byte strings behind their lengths."""
    if array.dtype == object:
        return b"".join(len(one).to_bytes(4, "little") + one for one in array.flat)
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def datatype(array: Array) -> str:
    """The protocol's name of an array's type."""
    return "BYTES" if array.dtype == object else next(n for n, kind_ in TYPES.items() if array.dtype == kind_)


def reply(facts: dict[str, Any], outputs: dict[str, Array], asked: Sent) -> tuple[bytes, int | None]:
    """A body that answers `asked`, and how many of its bytes are JSON if others follow."""
    names = asked.outputs if asked.outputs is not None else dict.fromkeys(outputs, asked.binary)
    if unknown := [name for name in names if name not in outputs]:
        raise Refused(400, f"there is no output {unknown[0]!r}: there are {', '.join(outputs)}")
    told, tail = [], []
    for name, binary in names.items():
        array = outputs[name]
        one: dict[str, Any] = {"name": name, "datatype": datatype(array), "shape": list(array.shape)}
        if binary:
            tail.append(packed(array))
            one["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            values = array.ravel().tolist()
            one["data"] = [value.decode() for value in values] if array.dtype == object else values
        told.append(one)
    whole = facts | ({"id": asked.id} if asked.id else {}) | {"outputs": told}
    text = json.dumps(whole, allow_nan=False, separators=(",", ":")).encode()
    return (b"".join([text, *tail]), len(text)) if tail else (text, None)
