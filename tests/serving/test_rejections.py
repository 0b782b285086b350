"""A wrong request is rejected with its reason, and the next one is answered."""

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

INFER_PATH = "/v2/models/digits/infer"


def render_black_png(size=(16, 16)):
    file = io.BytesIO()
    Image.new("L", size).save(file, "PNG")
    return file.getvalue()


def build_png_bomb():
    """Return a PNG of a few bytes whose header declares 13000x13000 pixels."""

    def build_chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = build_chunk(b"IHDR", struct.pack(">IIBBBBB", 13000, 13000, 8, 0, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + header
        + build_chunk(b"IDAT", zlib.compress(bytes(13001 * 100)))
        + build_chunk(b"IEND", b"")
    )


def build_tensor(**changes):
    return {"name": "pictures", "datatype": "UINT8", "shape": [1, 1, 16, 16], "data": [0] * 256} | changes


def build_body(**changes):
    return json.dumps({"inputs": [build_tensor(**changes)]}).encode()


def build_json_header(size, **changes):
    """Return the JSON header of a request whose tensor follows it as `size` bytes."""
    tensor = {key: value for key, value in build_tensor(**changes).items() if key != "data"}
    return json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": size}}]}).encode()


AS_PNG, AS_JSON = {"content_type": "image/png"}, {"content_type": "application/json"}
FORM_WITHOUT_FILE = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n'
AS_FORM = {"content_type": "multipart/form-data; boundary=x"}


def build_binary_body(header, tensor_bytes=b"", header_length=None):
    """Return the body and the HTTP header of a binary request; `header_length` replaces the true length."""
    length = len(header) if header_length is None else header_length
    return header + tensor_bytes, {"inference_header_content_length": str(length)}


CASES = {
    "empty body": ("/predict", b"", AS_PNG, 400),
    "text instead of an image": ("/predict", b"hello", AS_PNG, 400),
    "truncated png": ("/predict", render_black_png((64, 64))[:60], AS_PNG, 400),
    "png of 13000x13000": ("/predict", build_png_bomb(), AS_PNG, 413),
    "gif": ("/predict", b"GIF89a" + bytes(40), AS_PNG, 400),
    "unknown content type": ("/predict", b"x", {"content_type": "text/csv"}, 415),
    "bad json": ("/predict", b"{", AS_JSON, 400),
    "json that is a list": ("/predict", b"[]", AS_JSON, 400),
    "json without image": ("/predict", b"{}", AS_JSON, 400),
    "bad base64": ("/predict", b'{"image": "***"}', AS_JSON, 400),
    "form without a boundary": ("/predict", b"x", {"content_type": "multipart/form-data"}, 400),
    "form without a file": ("/predict", FORM_WITHOUT_FILE, AS_FORM, 400),
    "form cut off": ("/predict", b"--x\r\nContent-Disp", AS_FORM, 400),
    "unknown model": ("/models/nope/predict", render_black_png(), AS_PNG, 404),
    "unknown model of the inference protocol": ("/v2/models/nope/infer", build_body(), AS_JSON, 404),
    "unknown version": ("/v2/models/digits/versions/7/infer", build_body(), AS_JSON, 404),
    "unknown path": ("/nope", b"", {}, 404),
    "200 MB": ("/predict", bytes(200 << 20), AS_PNG, 413),
    "not gzip": ("/predict", b"xxxx", AS_PNG | {"content_encoding": "gzip"}, 400),
    "gzip bomb": ("/predict", gzip.compress(bytes(1 << 27)), AS_PNG | {"content_encoding": "gzip"}, 413),
    "gzip cut off": ("/predict", gzip.compress(render_black_png())[:-9], AS_PNG | {"content_encoding": "gzip"}, 400),
    "unknown encoding": ("/predict", b"x", AS_PNG | {"content_encoding": "br"}, 415),
    "infer bad json": (INFER_PATH, b"{]", AS_JSON, 400),
    "infer NaN": (INFER_PATH, build_body().replace(b"[0,", b"[NaN,").replace(b"[0, 0", b"[NaN, 0", 1), AS_JSON, 400),
    "infer no inputs": (INFER_PATH, b'{"inputs": []}', AS_JSON, 400),
    "infer unknown input": (INFER_PATH, build_body(name="x"), AS_JSON, 400),
    "infer wrong shape": (INFER_PATH, build_body(shape=[1, 1, 8, 32]), AS_JSON, 400),
    "infer wrong count": (INFER_PATH, build_body(data=[0] * 255), AS_JSON, 400),
    "infer value of 256": (INFER_PATH, build_body(data=[256] * 256), AS_JSON, 400),
    "infer strings": (INFER_PATH, build_body(data=["a"] * 256), AS_JSON, 400),
    "infer fractions": (INFER_PATH, build_body(data=[0.5] * 256), AS_JSON, 400),
    "infer negative dimension": (INFER_PATH, build_body(shape=[-1, 1, 16, 16]), AS_JSON, 400),
    "infer huge dimensions": (INFER_PATH, build_body(shape=[1 << 40, 1 << 40]), AS_JSON, 413),
    "infer unknown datatype": (INFER_PATH, build_body(datatype="FP4"), AS_JSON, 400),
    "infer wrong datatype": (INFER_PATH, build_body(datatype="FP32"), AS_JSON, 400),
    "infer too many images": (INFER_PATH, build_body(shape=[64, 1, 16, 16], data=[0] * 64 * 256), AS_JSON, 413),
    "infer no image": (INFER_PATH, build_body(shape=[0, 1, 16, 16], data=[]), AS_JSON, 400),
    "infer duplicate input": (
        INFER_PATH,
        json.dumps({"inputs": [build_tensor(), build_tensor()]}).encode(),
        AS_JSON,
        400,
    ),
    "infer unknown output": (
        INFER_PATH,
        json.dumps({"inputs": [build_tensor()], "outputs": [{"name": "x"}]}).encode(),
        AS_JSON,
        400,
    ),
    "infer deep nesting": (INFER_PATH, b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}", AS_JSON, 400),
    "infer long string": (INFER_PATH, build_body(shape=[128], data=["x" * 1_000_000] + [""] * 127), AS_JSON, 400),
    "infer zero and huge dimensions": (INFER_PATH, build_body(shape=[0, 1 << 70], data=[]), AS_JSON, 413),
    "infer unpaired surrogate": (
        INFER_PATH,
        build_body(name="encoded", datatype="BYTES", shape=[1], data=["\ud800"]),
        AS_JSON,
        400,
    ),
    "infer input name of a megabyte": (INFER_PATH, build_body(name="x" * 1_000_000), AS_JSON, 400),
    "header length of many digits": (INFER_PATH, build_body(), {"inference_header_content_length": "1" * 5000}, 400),
    "form with undefined charset": (
        "/predict",
        b'--x\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\n1\r\n--x--\r\n',
        {"content_type": "multipart/form-data; boundary=x; charset=undefined"},
        400,
    ),
    "trailing slash": ("/predict/", render_black_png(), AS_PNG, 404),
    "infer deeply nested strings": (
        INFER_PATH,
        build_body(name="encoded", datatype="BYTES", shape=[1]).replace(
            b"[0, ", b"[" * 900 + b"0" + b"]" * 900 + b", ", 1
        ),
        AS_JSON,
        400,
    ),
    "header length beyond the body": (INFER_PATH, *build_binary_body(build_body(), header_length=10**6), 400),
    "negative header length": (INFER_PATH, build_body(), {"inference_header_content_length": "-1"}, 400),
    "bytes missing": (INFER_PATH, *build_binary_body(build_json_header(256), bytes(100)), 400),
    "bytes left over": (INFER_PATH, *build_binary_body(build_json_header(256), bytes(300)), 400),
    "wrong binary size": (INFER_PATH, *build_binary_body(build_json_header(100), bytes(100)), 400),
    "negative binary size": (INFER_PATH, *build_binary_body(build_json_header(-1), bytes(100)), 400),
    "raw body of an incomplete image": (INFER_PATH, bytes(255), {"inference_header_content_length": "0"}, 400),
}


@pytest.mark.parametrize("name", CASES)
def test_wrong_request_is_rejected_with_its_reason(service, name):
    path, body, headers, expected_status = CASES[name]
    status, reply_headers, text = service.request("POST", path, body, **headers)
    reply = json.loads(text)
    assert status == expected_status, reply
    assert list(reply) == ["error"] and 10 < len(reply["error"]) < 300
    assert "Traceback" not in reply["error"] and " at 0x" not in reply["error"]
    assert reply_headers["content-type"] == "application/json"
    assert service.request_json("POST", "/predict", render_black_png(), **AS_PNG)["model"] == "digits"


def test_wrong_method_is_rejected(service):
    status, _, text = service.request("GET", "/predict")
    assert status == 405 and "GET is not allowed" in json.loads(text)["error"]


def read_peak_memory_mib(pid):
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def test_wrong_requests_do_not_increase_memory(service):
    Path(f"/proc/{service.replica_pid}/clear_refs").write_text("5")  # resets the high-water mark
    before = read_peak_memory_mib(service.replica_pid)
    for path, body, headers, _ in CASES.values():
        service.request("POST", path, body, **headers)
    assert read_peak_memory_mib(service.replica_pid) - before < 64


def test_hundred_slow_clients_time_out_and_delay_no_others(service):
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n"
    partial_requests = [head[:20], head + b"Content-Length: 1000\r\n\r\n" + bytes(10)]
    slow_clients = [socket.create_connection(("127.0.0.1", service.port), timeout=60) for _ in range(100)]
    for index, client in enumerate(slow_clients):
        client.sendall(partial_requests[index % 2])
    for _ in range(20):
        assert service.request_json("POST", "/predict", render_black_png(), **AS_PNG)["model"] == "digits"
    for client in slow_clients:
        reply = b"".join(iter(lambda client=client: client.recv(65536), b""))  # until the service closes it
        assert reply.startswith(b"HTTP/1.1 408 ") and b'{"error":' in reply
        client.close()


def test_bytes_after_a_request_do_not_keep_its_connection_open(service):
    """Endless trailers, an unfinished body that no route reads, and empty lines all end with a closed connection."""
    trailing_bytes = {
        b"GET /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n": b"0\r\n" + b"a: b\r\n" * 20_000,
        b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n": b"1",
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n": b"\r\n",
    }
    connections = []
    for request, trailing in trailing_bytes.items():
        connection = socket.create_connection(("127.0.0.1", service.port), timeout=30)
        connection.sendall(request)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        with suppress(OSError):
            connection.sendall(trailing)
        connections.append(connection)
    for connection in connections:
        with suppress(ConnectionResetError):
            while connection.recv(65536):
                pass
        connection.close()


def test_malformed_and_oversized_http_heads_are_rejected(service):
    for data, status in ((b"hello\r\n\r\n", b"400"), (b"GET /health HTTP/1.1\r\nX: " + b"x" * 70_000, b"431")):
        with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
            connection.sendall(data)
            reply = connection.recv(65536)
        assert reply.startswith(b"HTTP/1.1 " + status) and b'{"error":' in reply
