"""Stock clients of the Open Inference Protocol, and one that makes requests up from the OpenAPI document."""

import io
import json
import os
import re
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

README = Path(__file__).parents[2] / "README.md"
KSERVE = Path(sys.executable).parents[1] / "clients" / "bin" / "python"


@pytest.fixture(scope="module")
def model(service):
    return load_bundle(service.bundle)


@pytest.fixture
def client(service):
    made = triton.InferenceServerClient(f"127.0.0.1:{service.port}")
    yield made
    made.close()


def pictures(count):
    return np.random.default_rng(count).integers(0, 256, (count, 1, 16, 16)).astype(np.uint8)


def given(array, binary):
    made = triton.InferInput("pictures", list(array.shape), "UINT8")
    made.set_data_from_numpy(array, binary_data=binary)
    return [made]


@pytest.mark.parametrize("packing", [None, "gzip", "deflate"])
@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_triton_in_json_and_in_bytes_each_way(client, model, there, back, packing):
    array = pictures(32)
    wanted = [triton.InferRequestedOutput(name, binary_data=back) for name in ("scores", "labels")]
    found = client.infer(
        "digits",
        given(array, there),
        outputs=wanted,
        request_id="7",
        request_compression_algorithm=packing,
        response_compression_algorithm=packing,
    )
    expected = model.predict(torch.from_numpy(array))
    torch.testing.assert_close(torch.tensor(found.as_numpy("scores")), expected.scores, atol=1e-5, rtol=0)
    labels = found.as_numpy("labels").tolist()
    assert [one.decode() if isinstance(one, bytes) else one for one in labels] == expected.labels
    assert found.get_response()["id"] == "7"


def test_triton_as_it_comes(client, model):
    array = pictures(3)
    found = client.infer("digits", given(array, True))
    torch.testing.assert_close(
        torch.tensor(found.as_numpy("scores")), model.predict(torch.from_numpy(array)).scores, atol=1e-5, rtol=0
    )


def test_triton_sends_encoded_pictures(client, model):
    data = []
    for array in pictures(2):
        file = io.BytesIO()
        Image.fromarray(array[0]).save(file, "PNG")
        data.append(file.getvalue())
    made = triton.InferInput("encoded", [2], "BYTES")
    made.set_data_from_numpy(np.array(data, object))
    labels = client.infer("digits", [made]).as_numpy("labels").tolist()
    assert [one.decode() for one in labels] == model.predict(model.preprocess(data)).labels


def test_triton_is_told_what_there_is(client, model):
    version = model.manifest["digest"][:12]
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("digits", version)
    assert not client.is_model_ready("nope")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert client.get_model_metadata("digits")["versions"] == [version]
    assert client.get_model_config("digits")["max_batch_size"] == 32
    assert [one["name"] for one in client.get_model_repository_index()] == ["digits"]


def test_triton_is_told_what_is_wrong(client):
    array = pictures(1)
    other = triton.InferInput("other", [1], "FP32")
    other.set_data_from_numpy(np.zeros(1, np.float32))
    wrong = {
        "no model 'nope'": lambda: client.infer("nope", given(array, True)),
        "must be UINT8 of the shape": lambda: client.infer("digits", given(array[..., :8].copy(), True)),
        "there must be one input": lambda: client.infer("digits", [other]),
        "no output 'x'": lambda: client.infer("digits", given(array, True), outputs=[triton.InferRequestedOutput("x")]),
        "not as version": lambda: client.infer("digits", given(array, True), model_version="9"),
        "/metrics": lambda: client.get_inference_statistics("digits"),
    }
    for sentence, call in wrong.items():
        with pytest.raises(InferenceServerException, match=sentence):
            call()


def test_kserve(service, model):
    if not KSERVE.exists():
        pytest.skip("kserve's client has an environment of its own: make .venv/clients/ready")
    array = pictures(3)
    asked = json.dumps({"port": service.port, "pictures": array.tolist()})
    script = Path(__file__).with_name("kserve_client.py")
    ran = subprocess.run([KSERVE, script], input=asked, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    expected = model.predict(torch.from_numpy(array))
    assert found["live"] and found["ready"] and found["model ready"]
    for way in ("json", "bytes"):
        assert found[way]["labels"] == expected.labels
        torch.testing.assert_close(torch.tensor(found[way]["scores"]), expected.scores, atol=1e-5, rtol=0)
    assert "404" in found["unknown"]


def test_what_the_readme_shows_is_what_a_client_types(service, model, tmp_path):
    file = io.BytesIO()
    Image.fromarray(pictures(1)[0, 0]).save(file, "JPEG")
    (tmp_path / "cola.jpg").write_bytes(file.getvalue())
    expected = model.predict(model.preprocess([file.getvalue()])).labels[0]
    section = README.read_text().partition("## Serve")[2].partition("\n## ")[0].replace(":8000", f":{service.port}")
    (client,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    calls = re.findall(r"^curl .*$", section, re.MULTILINE)
    direct = os.environ | {"no_proxy": "*", "NO_PROXY": "*"}

    def said(*command):
        ran = subprocess.run(command, cwd=tmp_path, env=direct, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert said(sys.executable, "-c", client).strip() == expected
    form, coded, models = (json.loads(said("bash", "-c", f"{call} -s")) for call in calls)
    assert form["label"] == coded["label"] == expected
    assert models["models"][0]["name"] == "digits"


def test_requests_made_up_from_the_document_meet_no_fault(service):
    """schemathesis sends what the document allows and what it does not."""
    command = [
        *(Path(sys.executable).with_name("schemathesis"), "run", f"http://127.0.0.1:{service.port}/openapi.json"),
        *(
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        ),
        *("--max-examples", "40", "--phases", "examples,coverage,fuzzing", "--seed", "1", "--no-color"),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert service.json("GET", "/ready")["ready"]
