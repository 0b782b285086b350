"""The OpenAPI document names the type of every body, and describes the endpoints that the application has."""

import asyncio

import jsonschema
import msgspec
import pytest

from equipoise.captures.capture import CaptureMetadata
from services.http.api_operations import OPERATIONS
from services.http.message_types import CaptureListReply, ErrorReply
from services.http.openapi import build_openapi_document, render_docs_page
from services.http.prediction_types import BoxesReply, BoxReply, PredictionReply
from services.limits import Limits
from services.monitoring.metrics import Metrics
from services.routes.application import HttpApplication
from services.serving.models import ModelRegistry

UNDOCUMENTED_PARTS = ("/docs", "/openapi.json", "/stats", "/versions/")
CAPTURE = CaptureMetadata(
    id="0" * 16,
    at=1700000000.5,
    model="pets",
    version="v1",
    label="cat",
    score=0.75,
    scores={"cat": 0.75, "dog": 0.25},
    source=None,
    pool="drift",
    key=0.5,
    label_given="dog",
)


@pytest.fixture
def document():
    return build_openapi_document(True, Limits(), ["pets", "digits"])


def operation_at(document, endpoint):
    method, path = endpoint.split()
    return document["paths"][path][method.lower()]


def reply_schema(document, endpoint, media_type="application/json", status="200"):
    return operation_at(document, endpoint)["responses"][status]["content"][media_type]["schema"]


def check_reply(document, schema, reply):
    schema = schema | {"components": document["components"]}
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(reply)


def find_references(value):
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for item in value.values():
            yield from find_references(item)
    elif isinstance(value, list):
        for item in value:
            yield from find_references(item)


def test_every_reference_leads_to_a_schema(document):
    names = {reference.removeprefix("#/components/schemas/") for reference in find_references(document)}
    assert names and names <= document["components"]["schemas"].keys()


def test_type_of_a_reply_is_the_one_that_its_operation_names(document):
    check_reply(
        document,
        reply_schema(document, "POST /v2/repository/index"),
        [{"name": "pets", "version": "v", "state": "READY", "reason": ""}],
    )
    check_reply(document, reply_schema(document, "GET /models"), {"models": [], "not_loaded": None})
    reply = PredictionReply(model="m", version="v", id="1", label="cat", score=1.0, scores={"cat": 1.0})
    check_reply(document, reply_schema(document, "POST /predict"), vars(reply))
    box = BoxReply(label="cat", score=0.5, x=1.0, y=2.0, width=3.0, height=4.0)
    boxes = BoxesReply(model="m", version="v", id="1", width=640, height=480, boxes=[box])
    check_reply(document, reply_schema(document, "POST /predict"), msgspec.to_builtins(boxes))
    check_reply(document, reply_schema(document, "POST /predict", status="429"), vars(ErrorReply(error="busy")))
    captures = CaptureListReply(captures=[CAPTURE], trouble=None)
    check_reply(document, reply_schema(document, "GET /capture"), msgspec.to_builtins(captures))
    check_reply(document, reply_schema(document, "POST /capture/{id}/label"), CAPTURE.to_json())
    for endpoint, media_type in (("GET /", "text/html"), ("GET /metrics", "text/plain")):
        assert reply_schema(document, endpoint, media_type) == {"type": "string"}
    with pytest.raises(jsonschema.ValidationError):
        check_reply(document, reply_schema(document, "POST /predict"), vars(reply) | {"score": 1.5})


def test_replica_that_is_about_to_stop_is_not_ready():
    loop = asyncio.new_event_loop()
    registry = ModelRegistry(Limits(), loop, listener=None)
    registry.models["pets"] = object()
    application = HttpApplication(registry, Limits(), Metrics())
    assert loop.run_until_complete(application.get_readiness(None)).status_code == 200
    application.start_draining()
    assert loop.run_until_complete(application.get_readiness(None)).status_code == 503
    loop.close()


def test_operations_with_a_body_list_every_rejection(document):
    for endpoint, operation in OPERATIONS.items():
        described = operation_at(document, endpoint)
        assert ("requestBody" in described) == bool(operation.body)
        assert {"400", "413", "429"} <= described["responses"].keys() or not operation.body
    assert list(operation_at(document, "POST /drift/reset")["responses"]) == ["200", "403", "404", "503"]


def test_parameters_follow_from_the_path_and_the_query(document):
    name = {"type": "string", "enum": ["pets", "digits"]}
    in_path = {"name": "name", "in": "path", "required": True, "schema": name}
    assert operation_at(document, "POST /models/{name}/predict")["parameters"] == [in_path]
    assert operation_at(document, "GET /drift")["parameters"] == [{"name": "model", "in": "query", "schema": name}]
    assert [parameter["name"] for parameter in operation_at(document, "GET /capture/{id}")["parameters"]] == ["id"]
    assert "parameters" not in operation_at(document, "POST /predict")


def test_key_is_required_only_by_a_service_with_keys(document):
    assert document["security"] == [{"key": []}]
    open_document = build_openapi_document(False, Limits(), [])
    assert "security" not in open_document and "securitySchemes" not in open_document["components"]


def test_endpoints_of_the_application_are_those_of_the_document():
    loop = asyncio.new_event_loop()
    application = HttpApplication(ModelRegistry(Limits(), loop, listener=None), Limits(), Metrics())
    loop.close()
    endpoints = {f"{method} {route.path}" for route in application.app.routes for method in route.methods - {"HEAD"}}
    documented = {endpoint for endpoint in endpoints if not any(part in endpoint for part in UNDOCUMENTED_PARTS)}
    assert documented == OPERATIONS.keys()


def test_page_lists_every_endpoint(document):
    page = render_docs_page(document)
    assert all(endpoint in page for endpoint in OPERATIONS)
