"""The service predicts what its bundle predicts, for every form of request."""

import base64
import gzip
import io
import json
import re
from urllib.request import urlopen

import numpy as np
import pytest
import torch
from PIL import Image

from equipoise.bundle.bundle import load_bundle
from jobs.cluster.processes import wait_until

PREDICT_PATH, INFER_PATH = "/predict", "/v2/models/digits/infer"


@pytest.fixture(scope="module")
def model(service):
    return load_bundle(service.bundle)


def draw_pixels(seed=0, size=(16, 16)):
    return np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)


def encode_pixels(pixels, image_format="PNG"):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, image_format, **({"lossless": True} if image_format == "WEBP" else {}))
    return file.getvalue()


def check_prediction(prediction, expected):
    assert prediction["label"] == expected.labels[0]
    scores = torch.tensor(list(prediction["scores"].values()))
    torch.testing.assert_close(scores, expected.scores[0], atol=1e-5, rtol=0)


def test_url_that_is_printed_last_answers(service):
    wait_until(lambda: "\nanswers at http://" in service.log.read_text(), 60)
    url = re.findall(r"https?://\S+/", service.log.read_text())[-1]
    with urlopen(f"{url}ready", timeout=30) as reply:  # noqa: S310 - HTTP
        assert reply.status == 200
    assert url == f"http://127.0.0.1:{service.port}/"


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP"])
def test_image_of_any_format_and_size_is_predicted_as_by_the_bundle(service, model, image_format):
    data = encode_pixels(draw_pixels(1, (40, 30)), image_format)
    prediction = service.request_json("POST", PREDICT_PATH, data, content_type=f"image/{image_format.lower()}")
    check_prediction(prediction, model.predict(model.preprocess([data])))
    assert list(prediction["scores"]) == model.classes
    assert prediction["model"] == "digits" and prediction["version"] == model.version


def test_all_forms_of_request_give_the_same_prediction(service, model):
    data = encode_pixels(draw_pixels(2))
    expected = model.predict(model.preprocess([data]))
    payload = {"image": base64.b64encode(data).decode()}
    check_prediction(service.request_json("POST", PREDICT_PATH, payload, content_type="application/json"), expected)
    form = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + data + b"\r\n--x--\r\n"
    check_prediction(
        service.request_json("POST", PREDICT_PATH, form, content_type="multipart/form-data; boundary=x"), expected
    )
    check_prediction(service.request_json("POST", "/models/digits/predict", data, content_type="image/png"), expected)
    compressed = gzip.compress(data)
    check_prediction(
        service.request_json("POST", PREDICT_PATH, compressed, content_type="image/png", content_encoding="gzip"),
        expected,
    )


def test_request_keeps_its_id(service):
    data = encode_pixels(draw_pixels())
    prediction = service.request_json("POST", PREDICT_PATH, data, content_type="image/png", x_request_id="mine-1")
    assert prediction["id"] == "mine-1"
    assert service.request_json("POST", PREDICT_PATH, data, content_type="image/png")["id"] not in ("", "mine-1")


def build_tensor(pixels, **fields):
    return {"name": "pictures", "datatype": "UINT8", "shape": list(pixels.shape)} | fields


def test_json_tensors_are_flat_or_nested(service, model):
    pixels = draw_pixels(3, (3, 1, 16, 16))
    expected = model.predict(torch.from_numpy(pixels))
    for data in (pixels.tolist(), pixels.ravel().tolist()):
        reply = service.request_json("POST", INFER_PATH, {"id": "7", "inputs": [build_tensor(pixels, data=data)]})
        outputs = {output["name"]: output for output in reply["outputs"]}
        assert reply["id"] == "7" and reply["model_name"] == "digits"
        assert outputs["labels"]["data"] == expected.labels
        assert outputs["scores"]["shape"] == [3, 10]
        scores = torch.tensor(outputs["scores"]["data"]).view(3, 10)
        torch.testing.assert_close(scores, expected.scores, atol=1e-5, rtol=0)


def test_binary_tensors_in_request_and_reply(service, model):
    pixels = draw_pixels(4, (2, 1, 16, 16))
    expected = model.predict(torch.from_numpy(pixels))
    size = {"parameters": {"binary_data_size": pixels.nbytes}}
    header = json.dumps({"inputs": [build_tensor(pixels, **size)], "parameters": {"binary_data_output": True}}).encode()
    length = {"inference_header_content_length": str(len(header))}
    status, headers, body = service.request("POST", INFER_PATH, header + pixels.tobytes(), **length)
    assert status == 200, body
    header_end = int(headers["inference-header-content-length"])
    outputs = json.loads(body[:header_end])["outputs"]
    sizes = {output["name"]: output["parameters"]["binary_data_size"] for output in outputs}
    scores = body[header_end + sizes["labels"] :]
    np.testing.assert_allclose(np.frombuffer(scores, "<f4").reshape(2, 10), expected.scores.numpy(), atol=1e-5)
    label_size = int.from_bytes(body[header_end : header_end + 4], "little")
    assert body[header_end + 4 : header_end + 4 + label_size].decode() == expected.labels[0]


def test_body_may_be_the_bare_tensor(service, model):
    pixels = draw_pixels(5, (2, 1, 16, 16))
    status, headers, body = service.request("POST", INFER_PATH, pixels.tobytes(), inference_header_content_length="0")
    assert status == 200, body
    assert int(headers["inference-header-content-length"]) < len(body)


def test_encoded_images_are_sent_as_binary_tensor(service, model):
    encoded_images = [encode_pixels(draw_pixels(seed)) for seed in (6, 7)]
    tensor_bytes = b"".join(len(encoded).to_bytes(4, "little") + encoded for encoded in encoded_images)
    parameters = {"binary_data_size": len(tensor_bytes)}
    tensor = {"name": "encoded", "datatype": "BYTES", "shape": [2], "parameters": parameters}
    header = json.dumps({"inputs": [tensor], "outputs": [{"name": "labels"}]}).encode()
    length = {"inference_header_content_length": str(len(header))}
    status, _, body = service.request("POST", INFER_PATH, header + tensor_bytes, **length)
    assert status == 200, body
    (output,) = json.loads(body)["outputs"]
    assert output["data"] == model.predict(model.preprocess(encoded_images)).labels


def test_metadata_and_documentation_describe_the_model(service, model):
    version = model.version
    assert service.request_json("GET", "/v2")["extensions"] == ["binary_tensor_data"]
    metadata = service.request_json("GET", "/v2/models/digits")
    assert metadata["versions"] == [version]
    assert metadata["inputs"][0] == {"name": "pictures", "datatype": "UINT8", "shape": [-1, 1, 16, 16]}
    assert service.request_json("GET", f"/v2/models/digits/versions/{version}/ready")["ready"]
    assert service.request_json("POST", "/v2/repository/index")[0]["name"] == "digits"
    (entry,) = service.request_json("GET", "/models")["models"]
    assert entry["current"]["version"] == version and entry["current"]["engine"] == model.engine_name
    paths = service.request_json("GET", "/openapi.json")["paths"]
    assert {"/predict", "/v2/models/{name}/infer", "/metrics"} <= set(paths)
    status, headers, page = service.request("GET", "/docs")
    assert status == 200 and headers["content-type"].startswith("text/html") and b"/predict" in page


def test_metrics_count_images_and_requests(service, model):
    def sum_metric(prefix):
        _, _, text = service.request("GET", "/metrics")
        return sum(float(line.split()[-1]) for line in text.decode().splitlines() if line.startswith(prefix))

    images_metric = f'equipoise_pictures_total{{engine="{model.engine_name}",model="digits"'
    before = sum_metric(images_metric)
    for seed in range(5):
        service.request_json("POST", PREDICT_PATH, encode_pixels(draw_pixels(seed)), content_type="image/png")
    assert sum_metric(images_metric) == before + 5
    assert sum_metric('equipoise_requests_total{path="/predict",status="200"}') >= 5
