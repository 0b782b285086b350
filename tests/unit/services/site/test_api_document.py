"""The OpenAPI document tells every endpoint below /api, its role and its bodies."""

import json
import re

import pytest

from services.site.application import SiteApplication, list_part_builders
from services.site.settings import SiteSettings
from services.site.site_routes import SiteRoute

PREDICTIONS = ("/models/{name}/try",)
"""posts that ask a model and change nothing"""


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    return SiteApplication(SiteSettings(results=tmp_path_factory.mktemp("document")), list_part_builders())


@pytest.fixture(scope="module")
def document(application):
    endpoint = next(route for route in application.app.routes if route.path == "/api/openapi.json")
    assert endpoint
    return application.api_document.document


def list_api_routes(application):
    routes = [route for part in application.parts for route in part.routes()]
    assert all(isinstance(route, SiteRoute) for route in routes)
    return [route for route in routes if route.path.startswith("/api/")]


def test_every_endpoint_is_described_with_its_role(application, document):
    for route in list_api_routes(application):
        for method in route.methods - {"HEAD"}:
            entry = document["paths"][re.sub(r":\w+}", "}", route.path)][method.lower()]
            assert entry["x-role"] == str(route.role) and entry["summary"], route.path


def test_every_route_outside_the_login_needs_a_role_and_posts_need_more_than_view(application):
    for part in application.parts:
        for route in part.routes():
            assert route.role is not None, route.path
            is_read = route.methods <= {"GET", "HEAD"} or route.path in PREDICTIONS
            assert is_read or str(route.role) != "view", route.path


def test_every_reference_leads_to_a_schema(document):
    names = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document))
    assert names and set(names) <= document["components"]["schemas"].keys()
