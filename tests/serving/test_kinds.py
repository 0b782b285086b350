"""One service of models of all kinds: a table with a number, one with classes, a language model and images."""

import asyncio
import io
import json

import numpy as np
import pytest
import tritonclient.http as triton
from PIL import Image
from tritonclient.utils import InferenceServerException

from equipoise.bundle.bundle import load_bundle
from services.limits import Limits
from services.monitoring.metrics import Metrics
from services.serving.model_versions import ModelSpec
from services.serving.models import ModelRegistry
from tests.serving.conftest import FRIEDMAN_COLUMNS
from tests.support.errors import raises_code
from tests.support.tables import friedman_table, mixed_table

JSON = {"content_type": "application/json"}


@pytest.fixture(scope="module")
def models(kind_bundles):
    return {name: load_bundle(path) for name, path in kind_bundles.items()}


@pytest.fixture
def client(mixed_service):
    triton_client = triton.InferenceServerClient(f"127.0.0.1:{mixed_service.port}")
    yield triton_client
    triton_client.close()


def build_input(name, array):
    datatype = {"float32": "FP32", "int64": "INT64"}[array.dtype.name]
    infer_input = triton.InferInput(name, list(array.shape), datatype)
    infer_input.set_data_from_numpy(array)
    return infer_input


def list_grade_rows(count):
    table = mixed_table(count, seed=9).drop(columns="grade")
    rows = [{**row, "day": str(row["day"].date())} for row in table.to_dict("records")]
    return [{**row, "age": None if np.isnan(row["age"]) else row["age"]} for row in rows]


def test_row_is_answered_with_a_number_and_its_interval(mixed_service, models):
    rows = friedman_table(5, seed=7)[FRIEDMAN_COLUMNS[:-1]].to_dict("records")
    expected = models["friedman"].predict_rows(rows)
    for index, row in enumerate(rows):
        reply = mixed_service.request_json("POST", "/models/friedman/predict", {"row": row}, **JSON, x_request_id="7")
        assert reply["value"] == pytest.approx(expected.values[index], rel=1e-4)
        assert [reply["low"], reply["high"]] == pytest.approx([expected.low[index], expected.high[index]], rel=1e-4)
        assert reply["id"] == "7" and reply["version"] == models["friedman"].version


def test_row_is_answered_with_a_class_and_its_scores(mixed_service, models):
    rows = list_grade_rows(5)
    expected = models["grades"].predict_rows(rows)
    for index, row in enumerate(rows):
        reply = mixed_service.request_json("POST", "/models/grades/predict", {"row": row}, **JSON)
        assert reply["label"] == expected.labels[index] and reply["score"] == max(reply["scores"].values())
        assert [*reply["scores"].values()] == pytest.approx(expected.scores[index].tolist(), abs=1e-5)


@pytest.mark.parametrize("text", ["T", "To be or not to b", "Words, words, words. " * 20])
def test_text_is_answered_with_the_next_characters(mixed_service, models, text):
    reply = mixed_service.request_json("POST", "/models/plays/predict", {"text": text}, **JSON)
    expected = models["plays"].next_tokens(text)
    assert [token["character"] for token in reply["next"]] == [token.character for token in expected.next_tokens]
    assert [token["nats"] for token in reply["next"]] == pytest.approx(
        [token.nats for token in expected.next_tokens], abs=1e-4
    )
    assert reply["nats_per_token"] == (expected.nats_per_token and pytest.approx(expected.nats_per_token, abs=1e-4))


def test_images_are_answered_beside_them(mixed_service):
    file = io.BytesIO()
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(file, "PNG")
    reply = mixed_service.request_json("POST", "/models/digits/predict", file.getvalue(), content_type="image/png")
    assert reply["label"] in reply["scores"]


WRONG_BODIES = {
    "no row": ("grades", {"rows": []}, "row"),
    "row is a list": ("grades", {"row": [1, 2]}, "row must be a JSON object"),
    "missing column": ("grades", {"row": {"age": 1}}, "city"),
    "unknown column": ("friedman", {"row": dict.fromkeys([f"x{i}" for i in range(1, 6)], 0.5) | {"x0": 1}}, "x0"),
    "text for a number": ("friedman", {"row": dict.fromkeys([f"x{i}" for i in range(1, 6)], "a")}, "x1"),
    "huge number": ("friedman", {"row": dict.fromkeys([f"x{i}" for i in range(1, 6)], 10**400)}, "x1"),
    "numbers too large for the model": (
        "friedman",
        {"row": dict.fromkeys([f"x{i}" for i in range(1, 6)], 8e37)},
        "finite",
    ),
    "no text": ("plays", {"row": {}}, "text"),
    "empty text": ("plays", {"text": ""}, "at least one character"),
    "text is a number": ("plays", {"text": 3}, "string"),
    "half a surrogate pair": ("plays", {"text": "\ud800"}, "Unicode"),
}


@pytest.mark.parametrize("case", WRONG_BODIES)
def test_wrong_body_is_rejected_in_one_sentence(mixed_service, case):
    model, payload, part = WRONG_BODIES[case]
    body = json.dumps(payload).encode()
    status, _, reply = mixed_service.request("POST", f"/models/{model}/predict", body, **JSON)
    message = json.loads(reply)["error"]
    assert status == 400 and part in message and len(message.splitlines()) == 1


def test_bodies_that_are_too_long_or_no_json_are_rejected(mixed_service):
    for model, body, content_type, expected in (
        ("plays", json.dumps({"text": "x" * 10_001}).encode(), "application/json", 413),
        ("grades", b"\x89PNG", "image/png", 415),
        ("plays", b"{", "application/json", 400),
    ):
        status, _, _ = mixed_service.request("POST", f"/models/{model}/predict", body, content_type=content_type)
        assert status == expected


def test_triton_client_sends_encoded_rows(client, models):
    table = friedman_table(7, seed=3)[FRIEDMAN_COLUMNS]
    (numbers,) = models["friedman"].encode_rows(table.to_dict("records"))
    metadata = client.get_model_metadata("friedman")
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["numbers"]
    assert [tensor["name"] for tensor in metadata["outputs"]] == ["value", "low", "high"]
    result = client.infer("friedman", [build_input("numbers", numbers.numpy())])
    expected = models["friedman"].predict_rows(table.to_dict("records"))
    for name, values in (("value", expected.values), ("low", expected.low), ("high", expected.high)):
        np.testing.assert_allclose(result.as_numpy(name), values, rtol=1e-4)


def test_triton_client_sends_numbers_and_codes(client, models):
    rows = list_grade_rows(7)
    inputs = [
        build_input(name, tensor.numpy())
        for name, tensor in zip(("numbers", "codes"), models["grades"].encode_rows(rows), strict=True)
    ]
    result, expected = client.infer("grades", inputs), models["grades"].predict_rows(rows)
    assert [label.decode() for label in result.as_numpy("labels")] == expected.labels
    np.testing.assert_allclose(result.as_numpy("scores"), expected.scores, atol=1e-5)


def test_triton_client_sends_tokens(client, models):
    tokens = models["plays"].encode_text("To be or not to be")
    result = client.infer("plays", [build_input("tokens", tokens.numpy())])
    np.testing.assert_allclose(result.as_numpy("logits"), models["plays"].run_engine(tokens)[0], atol=1e-4)


def test_triton_client_receives_the_reason_of_a_rejection(client):
    numbers, codes = np.zeros((2, 5), np.float32), np.zeros((2, 1), np.int64)
    cases = {
        "inputs must be numbers and codes": ("grades", [build_input("numbers", numbers)]),
        "must be FP32": ("grades", [build_input("numbers", numbers[:, :4].copy()), build_input("codes", codes)]),
        "different numbers": ("grades", [build_input("numbers", numbers), build_input("codes", codes[:1].copy())]),
        "a code that": ("grades", [build_input("numbers", numbers), build_input("codes", codes + 99)]),
        "not a finite number": ("friedman", [build_input("numbers", np.full((1, 5), 3e38, np.float32))]),
        "the limit is 32": ("friedman", [build_input("numbers", np.zeros((33, 5), np.float32))]),
        "at most 64": ("plays", [build_input("tokens", np.zeros((1, 65), np.int64))]),
        "tokens must be from": ("plays", [build_input("tokens", np.full((1, 3), 10**6))]),
    }
    for message, (model, inputs) in cases.items():
        with pytest.raises(InferenceServerException, match=message):
            client.infer(model, inputs)


def test_status_says_which_kinds_are_served(mixed_service):
    served = mixed_service.request_json("GET", "/models")["models"]
    assert {model["name"]: model["kind"] for model in served} == {
        "digits": "image",
        "friedman": "table",
        "grades": "table",
        "plays": "text",
    }
    _, _, metrics = mixed_service.request("GET", "/metrics")
    assert b'model="plays"' in metrics and b'model="friedman"' in metrics
    assert mixed_service.request("GET", "/openapi.json")[0] == 200


def test_model_of_another_kind_is_swapped_in_under_the_same_name(kind_bundles):
    async def ask_in_turns():
        registry = ModelRegistry(Limits(), asyncio.get_running_loop(), Metrics())
        registry.apply_specs({"any": ModelSpec(bundle=str(kind_bundles["friedman"]))})
        rows = friedman_table(40, seed=5)[FRIEDMAN_COLUMNS].to_dict("records")
        numbers = await asyncio.gather(*(registry.find_model("any").predict(row) for row in rows))
        registry.apply_specs({"any": ModelSpec(bundle=str(kind_bundles["plays"]))})
        texts = ["To be", "To be or not", "To be"]
        answers = await asyncio.gather(*(registry.find_model("any").predict(text) for text in texts))
        registry.apply_specs({})
        return rows, numbers, texts, answers

    rows, numbers, texts, answers = asyncio.run(ask_in_turns())
    expected = load_bundle(kind_bundles["friedman"]).predict_rows(rows).values
    assert [output.prediction.values[0] for output in numbers] == pytest.approx(expected, rel=1e-4)
    plays = load_bundle(kind_bundles["plays"])
    for text, answer in zip(texts, answers, strict=True):  # of unequal lengths, answered in the order of the requests
        expected_nats = plays.next_tokens(text).nats_per_token
        assert answer.prediction.nats_per_token == pytest.approx(expected_nats, abs=1e-4)


def test_canary_is_refused_for_other_data_than_images(kind_bundles):
    loop = asyncio.new_event_loop()
    registry = ModelRegistry(Limits(), loop, Metrics())
    for bundle, canary in (("friedman", "friedman"), ("digits", "plays")):
        spec = ModelSpec(bundle=str(kind_bundles[bundle]), canary=str(kind_bundles[canary]))
        with raises_code("models-incompatible", "only models of images"):
            registry.apply_specs({"any": spec})
    assert not registry.models
    loop.close()
