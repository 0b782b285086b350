"""The OpenAPI document says which rejections to expect and within which limits; the page needs no network."""

import re
from importlib.metadata import version

import jsonschema
import pytest

from services.http.api_operations import OPERATIONS
from services.http.errors import REJECTION_DESCRIPTIONS
from services.http.message_types import InferenceBody
from services.http.openapi import build_openapi_document, build_schemas, render_docs_page
from services.http.prediction_types import PredictionReply
from services.limits import Limits

REJECTIONS_WITHOUT_BODY = {
    "GET /label": {404},
    "GET /models/{name}/compared": {404},
    "GET /drift": {404, 503},
    "GET /drift/history": {404, 503},
    "GET /drift/charts": {404, 503},
    "POST /drift/reset": {403, 404, 503},
    "GET /capture": {400, 404, 503},
    "GET /capture/{id}": {404, 503},
    "GET /ready": {503},
    "GET /v2/health/ready": {503},
    "GET /v2/models/{name}": {404},
    "GET /v2/models/{name}/ready": {404},
    "GET /v2/models/{name}/config": {404},
}
IMAGE_TYPES = {"image/png", "image/jpeg", "image/webp", "multipart/form-data", "application/json"}


@pytest.fixture
def document():
    return build_openapi_document(True, Limits(body_bytes=12345, pixels=678), ["pets"])


def operation_at(document, endpoint):
    method, path = endpoint.split()
    return document["paths"][path][method.lower()]


def build_validator(kind):
    schemas, components = build_schemas()
    return jsonschema.Draft202012Validator(schemas[kind] | {"components": {"schemas": components}})


@pytest.mark.parametrize("endpoint", OPERATIONS)
def test_operation_lists_the_rejections_to_expect(document, endpoint):
    responses = operation_at(document, endpoint)["responses"]
    has_body = "requestBody" in operation_at(document, endpoint)
    expected = REJECTION_DESCRIPTIONS if has_body else REJECTIONS_WITHOUT_BODY.get(endpoint, ())
    assert responses.keys() == {"200", *map(str, expected)}
    assert all(responses[str(status)]["description"] == REJECTION_DESCRIPTIONS[status] for status in expected)


def test_prediction_takes_every_form_of_an_image(document):
    for endpoint in ("POST /predict", "POST /models/{name}/predict"):
        body = operation_at(document, endpoint)["requestBody"]
        assert body["required"] is True and body["content"].keys() == IMAGE_TYPES
    assert operation_at(document, "POST /capture/labels")["requestBody"]["content"].keys() == {"text/csv"}


def test_endpoints_of_one_path_are_described_together(document):
    assert sum(len(operations) for operations in document["paths"].values()) == len(OPERATIONS)
    assert all(operation_at(document, endpoint)["summary"] == OPERATIONS[endpoint].summary for endpoint in OPERATIONS)


def test_document_names_the_version_and_the_limits(document):
    assert document["openapi"] == "3.1.0" and document["info"]["version"] == version("equipoise")
    assert "12345 bytes" in document["info"]["description"] and "678 pixels" in document["info"]["description"]
    assert document["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}


@pytest.mark.parametrize(("score", "is_valid"), [(0.0, True), (1.0, True), (-0.01, False), (1.01, False)])
def test_score_of_a_prediction_is_a_probability(score, is_valid):
    reply = PredictionReply(model="m", version="v", id="1", label="cat", score=score, scores={"cat": score})
    assert build_validator(PredictionReply).is_valid(vars(reply)) == is_valid


def test_inference_request_holds_at_least_one_input():
    tensor = {"name": "x", "datatype": "UINT8", "shape": [1], "data": [1]}
    validator = build_validator(InferenceBody)
    assert validator.is_valid({"inputs": [tensor]}) and validator.is_valid({"inputs": [tensor, tensor]})
    for wrong in ({}, {"inputs": []}, {"inputs": [{}]}, {"inputs": [tensor], "outputs": [{}]}):
        assert not validator.is_valid(wrong)


def test_page_shows_what_each_endpoint_takes_without_loading_anything(document):
    page = render_docs_page(document)
    rows = re.findall(r"<tr><td><code>(.*?)</code></td><td>(.*?)</td><td>(.*?)</td></tr>", page)
    assert {endpoint for endpoint, _, _ in rows} == OPERATIONS.keys() and len(rows) == len(OPERATIONS)
    for endpoint, summary, body in rows:
        assert summary.replace("&#x27;", "'") == OPERATIONS[endpoint].summary
        assert {*filter(None, body.split(", "))} == OPERATIONS[endpoint].body.keys()
    assert page.startswith("<!doctype html>") and "12345 bytes" in page
    assert not re.search(r"<script|<link|<img|src=|//", page)
