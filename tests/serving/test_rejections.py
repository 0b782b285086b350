"""Whatever is wrong with a request, its sender is told, and the next one is answered."""

import gzip
import io
import json
import socket
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from PIL import Image

INFER = "/v2/models/digits/infer"


def png(size=(16, 16)):
    file = io.BytesIO()
    Image.new("L", size).save(file, "PNG")
    return file.getvalue()


def bomb():
    """A PNG that says it is 13000x13000, in a few bytes."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 13000, 13000, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(13001 * 100))) + chunk(b"IEND", b"")


def tensor(**changes):
    return {"name": "pictures", "datatype": "UINT8", "shape": [1, 1, 16, 16], "data": [0] * 256} | changes


def asked(**changes):
    return json.dumps({"inputs": [tensor(**changes)]}).encode()


def binary(size, **changes):
    one = {key: value for key, value in tensor(**changes).items() if key != "data"}
    return json.dumps({"inputs": [one | {"parameters": {"binary_data_size": size}}]}).encode()


PNG, JSON = {"content_type": "image/png"}, {"content_type": "application/json"}
NO_FILE = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n'
FORM = {"content_type": "multipart/form-data; boundary=x"}


def headed(head, tail=b"", length=None):
    return head + tail, {"inference_header_content_length": str(len(head) if length is None else length)}


CASES = {
    "empty body": ("/predict", b"", PNG, 400),
    "text instead of a picture": ("/predict", b"hello", PNG, 400),
    "truncated png": ("/predict", png((64, 64))[:60], PNG, 400),
    "png of 13000x13000": ("/predict", bomb(), PNG, 413),
    "gif": ("/predict", b"GIF89a" + bytes(40), PNG, 400),
    "unknown content type": ("/predict", b"x", {"content_type": "text/csv"}, 415),
    "bad json": ("/predict", b"{", JSON, 400),
    "json that is a list": ("/predict", b"[]", JSON, 400),
    "json without image": ("/predict", b"{}", JSON, 400),
    "bad base64": ("/predict", b'{"image": "***"}', JSON, 400),
    "form without a boundary": ("/predict", b"x", {"content_type": "multipart/form-data"}, 400),
    "form without a file": (
        "/predict",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n',
        FORM,
        400,
    ),
    "form cut off": ("/predict", b"--x\r\nContent-Disp", FORM, 400),
    "unknown model": ("/models/nope/predict", png(), PNG, 404),
    "unknown model of the protocol": ("/v2/models/nope/infer", asked(), JSON, 404),
    "unknown version": ("/v2/models/digits/versions/7/infer", asked(), JSON, 404),
    "unknown path": ("/nope", b"", {}, 404),
    "200 MB": ("/predict", bytes(200 << 20), PNG, 413),
    "gzip that is none": ("/predict", b"xxxx", PNG | {"content_encoding": "gzip"}, 400),
    "gzip bomb": ("/predict", gzip.compress(bytes(1 << 27)), PNG | {"content_encoding": "gzip"}, 413),
    "gzip cut off": ("/predict", gzip.compress(png())[:-9], PNG | {"content_encoding": "gzip"}, 400),
    "unknown encoding": ("/predict", b"x", PNG | {"content_encoding": "br"}, 415),
    "infer bad json": (INFER, b"{]", JSON, 400),
    "infer NaN": (INFER, asked().replace(b"[0,", b"[NaN,").replace(b"[0, 0", b"[NaN, 0", 1), JSON, 400),
    "infer no inputs": (INFER, b'{"inputs": []}', JSON, 400),
    "infer unknown input": (INFER, asked(name="x"), JSON, 400),
    "infer wrong shape": (INFER, asked(shape=[1, 1, 8, 32]), JSON, 400),
    "infer wrong count": (INFER, asked(data=[0] * 255), JSON, 400),
    "infer value of 256": (INFER, asked(data=[256] * 256), JSON, 400),
    "infer texts": (INFER, asked(data=["a"] * 256), JSON, 400),
    "infer halves": (INFER, asked(data=[0.5] * 256), JSON, 400),
    "infer negative side": (INFER, asked(shape=[-1, 1, 16, 16]), JSON, 400),
    "infer huge sides": (INFER, asked(shape=[1 << 40, 1 << 40]), JSON, 413),
    "infer unknown datatype": (INFER, asked(datatype="FP4"), JSON, 400),
    "infer another datatype": (INFER, asked(datatype="FP32"), JSON, 400),
    "infer too many pictures": (INFER, asked(shape=[64, 1, 16, 16], data=[0] * 64 * 256), JSON, 413),
    "infer no picture": (INFER, asked(shape=[0, 1, 16, 16], data=[]), JSON, 400),
    "infer twice the same": (INFER, json.dumps({"inputs": [tensor(), tensor()]}).encode(), JSON, 400),
    "infer unknown output": (INFER, json.dumps({"inputs": [tensor()], "outputs": [{"name": "x"}]}).encode(), JSON, 400),
    "infer deep nesting": (INFER, b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}", JSON, 400),
    "infer long text among numbers": (INFER, asked(shape=[128], data=["x" * 1_000_000] + [""] * 127), JSON, 400),
    "infer sides of nothing": (INFER, asked(shape=[0, 1 << 70], data=[]), JSON, 413),
    "infer half a character": (
        INFER,
        asked(name="encoded", datatype="BYTES", shape=[1], data=["\ud800"]),
        JSON,
        400,
    ),
    "infer a name of a megabyte": (INFER, asked(name="x" * 1_000_000), JSON, 400),
    "header of many digits": (INFER, asked(), {"inference_header_content_length": "1" * 5000}, 400),
    "form in an odd alphabet": (
        "/predict",
        b'--x\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\n1\r\n--x--\r\n',
        {"content_type": "multipart/form-data; boundary=x; charset=undefined"},
        400,
    ),
    "slash at the end": ("/predict/", png(), PNG, 404),
    "infer texts nested deep": (
        INFER,
        asked(name="encoded", datatype="BYTES", shape=[1]).replace(b"[0, ", b"[" * 900 + b"0" + b"]" * 900 + b", ", 1),
        JSON,
        400,
    ),
    "header beyond the body": (INFER, *headed(asked(), length=10**6), 400),
    "header that is no number": (INFER, asked(), {"inference_header_content_length": "-1"}, 400),
    "bytes missing": (INFER, *headed(binary(256), bytes(100)), 400),
    "bytes left over": (INFER, *headed(binary(256), bytes(300)), 400),
    "size that lies": (INFER, *headed(binary(100), bytes(100)), 400),
    "size below zero": (INFER, *headed(binary(-1), bytes(100)), 400),
    "raw body of no whole picture": (INFER, bytes(255), {"inference_header_content_length": "0"}, 400),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_request_is_told_what_is_wrong_with_it(service, name):
    path, body, headers, expected = CASES[name]
    status, replied, text = service.ask("POST", path, body, **headers)
    facts = json.loads(text)
    assert status == expected, facts
    assert list(facts) == ["error"] and 10 < len(facts["error"]) < 300
    assert "Traceback" not in facts["error"] and " at 0x" not in facts["error"]
    assert replied["content-type"] == "application/json"
    assert service.json("POST", "/predict", png(), **PNG)["model"] == "digits"


def test_another_method_is_told_so(service):
    status, _, text = service.ask("GET", "/predict")
    assert status == 405 and "GET is not allowed" in json.loads(text)["error"]


def resident(pid):
    """MiB of memory."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def test_all_of_them_again_take_no_more_memory(service):
    Path(f"/proc/{service.replica}/clear_refs").write_text("5")  # the high-water mark begins anew
    before = resident(service.replica)
    for path, body, headers, _ in CASES.values():
        service.ask("POST", path, body, **headers)
    assert resident(service.replica) - before < 64


def test_a_hundred_slow_clients_keep_nobody_waiting_and_are_told_so(service):
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n"
    begun = [head[:20], head + b"Content-Length: 1000\r\n\r\n" + bytes(10)]
    slow = [socket.create_connection(("127.0.0.1", service.port), timeout=60) for _ in range(100)]
    for place, one in enumerate(slow):
        one.sendall(begun[place % 2])
    for _ in range(20):
        assert service.json("POST", "/predict", png(), **PNG)["model"] == "digits"
    for one in slow:
        reply = b"".join(iter(lambda one=one: one.recv(65536), b""))  # until it is closed
        assert reply.startswith(b"HTTP/1.1 408 ") and b'{"error":' in reply
        one.close()


def test_what_trails_a_request_has_an_end_too(service):
    """Neither endless trailers nor a body that nobody asked for keep a connection."""
    begun = {
        b"GET /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n": b"0\r\n" + b"a: b\r\n" * 20_000,
        b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n": b"1",
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n": b"\r\n",
    }
    held = []
    for head, trail in begun.items():
        one = socket.create_connection(("127.0.0.1", service.port), timeout=30)
        one.sendall(head)
        assert one.recv(65536).startswith(b"HTTP/1.1 200")
        with suppress(OSError):
            one.sendall(trail)
        held.append(one)
    for one in held:
        with suppress(ConnectionResetError):
            while one.recv(65536):
                pass
        one.close()


def test_what_is_no_http_or_has_no_end_is_told_so(service):
    for sent, status in ((b"hello\r\n\r\n", b"400"), (b"GET /health HTTP/1.1\r\nX: " + b"x" * 70_000, b"431")):
        with socket.create_connection(("127.0.0.1", service.port), timeout=30) as one:
            one.sendall(sent)
            reply = one.recv(65536)
        assert reply.startswith(b"HTTP/1.1 " + status) and b'{"error":' in reply
