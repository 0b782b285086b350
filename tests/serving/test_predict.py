"""What the service answers is what the bundle answers, in every form a client may ask."""

import base64
import gzip
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from equipoise.bundle.bundle import load_bundle

PREDICT, INFER = "/predict", "/v2/models/digits/infer"


@pytest.fixture(scope="module")
def model(service):
    return load_bundle(service.bundle)


def drawn(seed=0, size=(16, 16)):
    return np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)


def encoded(pixels, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return file.getvalue()


def same(found, expected):
    assert found["label"] == expected.labels[0]
    scores = torch.tensor(list(found["scores"].values()))
    torch.testing.assert_close(scores, expected.scores[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_picture_of_any_format_and_size_is_answered_as_the_bundle_does(service, model, kind):
    data = encoded(drawn(1, (40, 30)), kind)
    found = service.json("POST", PREDICT, data, content_type=f"image/{kind.lower()}")
    same(found, model.predict(model.preprocess([data])))
    assert list(found["scores"]) == model.classes
    assert found["model"] == "digits" and found["version"] == model.manifest["digest"][:12]


def test_the_same_picture_as_a_form_or_in_json(service, model):
    data = encoded(drawn(2))
    expected = model.predict(model.preprocess([data]))
    coded = {"image": base64.b64encode(data).decode()}
    same(service.json("POST", PREDICT, coded, content_type="application/json"), expected)
    form = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + data + b"\r\n--x--\r\n"
    same(service.json("POST", PREDICT, form, content_type="multipart/form-data; boundary=x"), expected)
    same(service.json("POST", "/models/digits/predict", data, content_type="image/png"), expected)
    packed = gzip.compress(data)
    same(service.json("POST", PREDICT, packed, content_type="image/png", content_encoding="gzip"), expected)


def test_a_request_keeps_its_name(service):
    found = service.json("POST", PREDICT, encoded(drawn()), content_type="image/png", x_request_id="mine-1")
    assert found["id"] == "mine-1"
    assert service.json("POST", PREDICT, encoded(drawn()), content_type="image/png")["id"] not in ("", "mine-1")


def tensor(pixels, **more):
    return {"name": "pictures", "datatype": "UINT8", "shape": list(pixels.shape)} | more


def test_tensors_in_json_flat_or_nested(service, model):
    pixels = drawn(3, (3, 1, 16, 16))
    expected = model.predict(torch.from_numpy(pixels))
    for data in (pixels.tolist(), pixels.ravel().tolist()):
        found = service.json("POST", INFER, {"id": "7", "inputs": [tensor(pixels, data=data)]})
        outputs = {one["name"]: one for one in found["outputs"]}
        assert found["id"] == "7" and found["model_name"] == "digits"
        assert outputs["labels"]["data"] == expected.labels
        assert outputs["scores"]["shape"] == [3, 10]
        scores = torch.tensor(outputs["scores"]["data"]).view(3, 10)
        torch.testing.assert_close(scores, expected.scores, atol=1e-5, rtol=0)


def test_tensors_as_bytes_both_ways(service, model):
    pixels = drawn(4, (2, 1, 16, 16))
    expected = model.predict(torch.from_numpy(pixels))
    size = {"parameters": {"binary_data_size": pixels.nbytes}}
    head = json.dumps({"inputs": [tensor(pixels, **size)], "parameters": {"binary_data_output": True}}).encode()
    length = {"inference_header_content_length": str(len(head))}
    status, headers, body = service.ask("POST", INFER, head + pixels.tobytes(), **length)
    assert status == 200, body
    cut = int(headers["inference-header-content-length"])
    told = {one["name"]: one["parameters"]["binary_data_size"] for one in json.loads(body[:cut])["outputs"]}
    scores = body[cut + told["labels"] :]
    np.testing.assert_allclose(np.frombuffer(scores, "<f4").reshape(2, 10), expected.scores.numpy(), atol=1e-5)
    first = int.from_bytes(body[cut : cut + 4], "little")
    assert body[cut + 4 : cut + 4 + first].decode() == expected.labels[0]


def test_a_body_that_is_nothing_but_the_tensor(service, model):
    pixels = drawn(5, (2, 1, 16, 16))
    status, headers, body = service.ask("POST", INFER, pixels.tobytes(), inference_header_content_length="0")
    assert status == 200, body
    assert int(headers["inference-header-content-length"]) < len(body)


def test_encoded_pictures_as_tensors(service, model):
    data = [encoded(drawn(seed)) for seed in (6, 7)]
    packed = b"".join(len(one).to_bytes(4, "little") + one for one in data)
    one = {"name": "encoded", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(packed)}}
    asked = {"inputs": [one], "outputs": [{"name": "labels"}]}
    head = json.dumps(asked).encode()
    length = {"inference_header_content_length": str(len(head))}
    status, _, body = service.ask("POST", INFER, head + packed, **length)
    assert status == 200, body
    (outputs,) = json.loads(body)["outputs"]
    assert outputs["data"] == model.predict(model.preprocess(data)).labels


def test_what_there_is_is_told(service, model):
    version = model.manifest["digest"][:12]
    assert service.json("GET", "/v2")["extensions"] == ["binary_tensor_data"]
    found = service.json("GET", "/v2/models/digits")
    assert found["versions"] == [version]
    assert found["inputs"][0] == {"name": "pictures", "datatype": "UINT8", "shape": [-1, 1, 16, 16]}
    assert service.json("GET", f"/v2/models/digits/versions/{version}/ready")["ready"]
    assert service.json("POST", "/v2/repository/index")[0]["name"] == "digits"
    (told,) = service.json("GET", "/models")["models"]
    assert told["current"]["version"] == version and told["current"]["engine"] == model.engine_name
    paths = service.json("GET", "/openapi.json")["paths"]
    assert {"/predict", "/v2/models/{name}/infer", "/metrics"} <= set(paths)
    status, headers, page = service.ask("GET", "/docs")
    assert status == 200 and headers["content-type"].startswith("text/html") and b"/predict" in page


def test_counts_add_up(service, model):
    def counted(name):
        _, _, text = service.ask("GET", "/metrics")
        return sum(float(line.split()[-1]) for line in text.decode().splitlines() if line.startswith(name))

    name = f'equipoise_pictures_total{{engine="{model.engine_name}",model="digits"'
    before = counted(name)
    for seed in range(5):
        service.json("POST", PREDICT, encoded(drawn(seed)), content_type="image/png")
    assert counted(name) == before + 5
    assert counted('equipoise_requests_total{path="/predict",status="200"}') >= 5
