"""Stock clients of the Open Inference Protocol, those of the guide, and requests generated from OpenAPI."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import tritonclient.http as triton
from PIL import Image
from tritonclient.utils import InferenceServerException

from equipoise.bundle.bundle import load_bundle
from tests.support.doc_fences import read_fences
from tests.support.ray_cluster import ROOT

FENCES = read_fences(ROOT / "docs" / "guides" / "serve.md")
KSERVE_PYTHON = Path(sys.executable).parents[1] / "clients" / "bin" / "python"


@pytest.fixture(scope="module")
def model(service):
    return load_bundle(service.bundle)


@pytest.fixture
def client(service):
    triton_client = triton.InferenceServerClient(f"127.0.0.1:{service.port}")
    yield triton_client
    triton_client.close()


def render_random_images(count):
    return np.random.default_rng(count).integers(0, 256, (count, 1, 16, 16)).astype(np.uint8)


def build_inputs(images, binary):
    infer_input = triton.InferInput("pictures", list(images.shape), "UINT8")
    infer_input.set_data_from_numpy(images, binary_data=binary)
    return [infer_input]


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary_output", [True, False])
@pytest.mark.parametrize("binary_input", [True, False])
def test_triton_client_sends_and_receives_json_and_bytes(client, model, binary_input, binary_output, compression):
    images = render_random_images(32)
    outputs = [triton.InferRequestedOutput(name, binary_data=binary_output) for name in ("scores", "labels")]
    result = client.infer(
        "digits",
        build_inputs(images, binary_input),
        outputs=outputs,
        request_id="7",
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )
    expected = model.predict(torch.from_numpy(images))
    torch.testing.assert_close(torch.tensor(result.as_numpy("scores")), expected.scores, atol=1e-5, rtol=0)
    labels = result.as_numpy("labels").tolist()
    assert [label.decode() if isinstance(label, bytes) else label for label in labels] == expected.labels
    assert result.get_response()["id"] == "7"


def test_triton_client_works_with_its_defaults(client, model):
    images = render_random_images(3)
    result = client.infer("digits", build_inputs(images, True))
    torch.testing.assert_close(
        torch.tensor(result.as_numpy("scores")), model.predict(torch.from_numpy(images)).scores, atol=1e-5, rtol=0
    )


def test_triton_client_sends_encoded_images(client, model):
    encoded_images = []
    for image in render_random_images(2):
        file = io.BytesIO()
        Image.fromarray(image[0]).save(file, "PNG")
        encoded_images.append(file.getvalue())
    infer_input = triton.InferInput("encoded", [2], "BYTES")
    infer_input.set_data_from_numpy(np.array(encoded_images, object))
    labels = client.infer("digits", [infer_input]).as_numpy("labels").tolist()
    assert [label.decode() for label in labels] == model.predict(model.preprocess(encoded_images)).labels


def test_triton_client_reads_health_and_metadata(client, model):
    version = model.version
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("digits", version)
    assert not client.is_model_ready("nope")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert client.get_model_metadata("digits")["versions"] == [version]
    assert client.get_model_config("digits")["max_batch_size"] == 32
    assert [entry["name"] for entry in client.get_model_repository_index()] == ["digits"]


def test_triton_client_receives_reason_of_rejection(client):
    images = render_random_images(1)
    unknown_input = triton.InferInput("other", [1], "FP32")
    unknown_input.set_data_from_numpy(np.zeros(1, np.float32))
    rejected_calls = {
        "no model 'nope'": lambda: client.infer("nope", build_inputs(images, True)),
        "must be UINT8 of the shape": lambda: client.infer("digits", build_inputs(images[..., :8].copy(), True)),
        "there must be one input": lambda: client.infer("digits", [unknown_input]),
        "no output 'x'": lambda: client.infer(
            "digits", build_inputs(images, True), outputs=[triton.InferRequestedOutput("x")]
        ),
        "not as version": lambda: client.infer("digits", build_inputs(images, True), model_version="9"),
        "/metrics": lambda: client.get_inference_statistics("digits"),
    }
    for message, call in rejected_calls.items():
        with pytest.raises(InferenceServerException, match=message):
            call()


def test_kserve_client(service, model):
    if not KSERVE_PYTHON.exists():
        pytest.skip("kserve's client has an environment of its own: make .venv/clients/ready")
    images = render_random_images(3)
    settings = json.dumps({"port": service.port, "pictures": images.tolist()})
    script = Path(__file__).with_name("kserve_client.py")
    result = subprocess.run([KSERVE_PYTHON, script], input=settings, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    replies = json.loads(result.stdout)
    expected = model.predict(torch.from_numpy(images))
    assert replies["live"] and replies["ready"] and replies["model ready"]
    for encoding in ("json", "bytes"):
        assert replies[encoding]["labels"] == expected.labels
        torch.testing.assert_close(torch.tensor(replies[encoding]["scores"]), expected.scores, atol=1e-5, rtol=0)
    assert "404" in replies["unknown"]


def test_clients_of_the_guide_work(service, model, tmp_path):
    file = io.BytesIO()
    Image.fromarray(render_random_images(1)[0, 0]).save(file, "PNG")
    (tmp_path / "digit.png").write_bytes(file.getvalue())
    expected = model.predict(model.preprocess([file.getvalue()])).labels[0]
    names = ("client", "form", "base64", "models")
    python_client, *curl_calls = (FENCES[name].text.strip().replace(":8000", f":{service.port}") for name in names)
    environment = os.environ | {"no_proxy": "*", "NO_PROXY": "*"}

    def read_output(*command):
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert read_output(sys.executable, "-c", python_client).strip() == expected
    from_form, from_json, models = (json.loads(read_output("bash", "-c", f"{call} -s")) for call in curl_calls)
    assert from_form["label"] == from_json["label"] == expected
    assert models["models"][0]["name"] == "digits"


def test_requests_generated_from_openapi_find_no_fault(service):
    """Let schemathesis send requests that the OpenAPI document allows, and requests that it forbids."""
    command = [
        *(Path(sys.executable).with_name("schemathesis"), "run", f"http://127.0.0.1:{service.port}/openapi.json"),
        *(
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        ),
        *("--max-examples", "40", "--phases", "examples,coverage,fuzzing", "--seed", "1", "--no-color"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert service.request_json("GET", "/ready")["ready"]
