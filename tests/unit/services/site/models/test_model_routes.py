"""Who may do what with models and labels on the site, what never leaves it, and forms with nonsense."""

import io
import json
from dataclasses import replace

import pytest
from PIL import Image

from equipoise.bundle.folder import MANIFEST_FILE, MODEL_CARD_FILE
from equipoise.captures.store import CaptureStore
from equipoise.storage.atomic import write_json
from services.site.labels.labels_part import LabelsPart
from services.site.models.deployments.deployment import Deployment
from services.site.models.deployments.deployment_store import DeploymentStore
from services.site.models.models_part import ModelsPart
from tests.support.captures import CLASSES, build_request
from tests.support.manifests import build_manifest
from tests.support.site import serve_site

KEYS = ["run key-of-run", "label key-of-label", "view key-of-view"]
SERVICE_KEY = "key-of-the-service"
PAGES = ("/", "/models", "/models/bundles/bundles/insects", "/models/insects", "/models/insects/try", "/labels")
ENDPOINTS = ("/api/deployments", "/api/deployments/insects", "/api/bundles", "/api/labels", "/api/openapi.json")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    results = tmp_path_factory.mktemp("model-routes") / "results"
    bundle = results / "bundles" / "insects"
    bundle.mkdir(parents=True)
    write_json(bundle / MANIFEST_FILE, build_manifest(name="insects", classes=CLASSES).to_json())
    (bundle / MODEL_CARD_FILE).write_text("# insects")
    deployment = Deployment(name="insects", model="insects", bundle="bundles/insects", port=18002, requires_key=True)
    DeploymentStore(results / ".site").add_deployment(lambda _: deployment.record_change("deploy", "x", 1.0))
    (results / ".site" / "keys").mkdir()
    (results / ".site" / "keys" / "insects.keys").write_text(SERVICE_KEY)
    assert CaptureStore(str(results / "services" / "insects" / "captures"), seed=0).offer(build_request(side=8))
    with serve_site(results, KEYS, [ModelsPart, LabelsPart]) as site:
        site.results = results
        yield site


@pytest.mark.parametrize(
    ("method", "path", "payload"),
    [
        ("POST", "/api/deployments", {"bundle": "bundles/insects"}),
        ("DELETE", "/api/deployments/insects", None),
        ("POST", "/api/deployments/insects/canary", {"bundle": "bundles/insects"}),
        ("POST", "/api/deployments/insects/promote", {}),
        ("POST", "/api/deployments/insects/roll-back", None),
        ("POST", "/api/deployments/insects/adapt", {}),
        ("POST", "/api/labels", {"name": "x", "images": "bundles", "kind": "class"}),
    ],
)
def test_changes_need_the_role_run(site, method, path, payload):
    for key in ("key-of-view", "key-of-label"):
        status, reply = site.api(method, path, payload, key)
        assert status == 403 and "the role run" in reply["error"]
    assert site.api(method, path, payload)[0] == 401
    assert site.api("GET", "/api/deployments/insects", key="key-of-view")[1]["bundle"] == "bundles/insects"


def test_who_may_view_sees_the_label_queues_as_a_page_and_as_json(site):
    assert site.api("GET", "/api/labels", key="key-of-view")[1]["queues"][0]["name"] == "insects"
    assert site.page("/labels", authorization="Bearer key-of-view")[0] == 200


def test_pictures_are_lent_to_who_has_the_role_label(site):
    body = {"holder": "robot", "skip": []}
    assert site.api("POST", "/api/labels/insects/next", body, "key-of-view")[0] == 403
    status, reply = site.api("POST", "/api/labels/insects/next", body, "key-of-label")
    assert status == 200 and reply["document"]["guess"]["label"] == "ant"
    assert site.api("POST", "/api/labels/nothing/next", body, "key-of-label")[0] == 404


def test_nobody_adds_a_picture_to_the_captures_of_a_service(site):
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    reply, content = site.request(
        "POST", "/labels/insects/upload?name=x.png", buffer.getvalue(), authorization="Bearer key-of-label"
    )
    assert reply.status == 400 and "captures of a service" in json.loads(content)["error"]


def test_a_name_that_no_file_can_have_is_refused(site):
    for path in (f"labels?name={'x' * 300}.png", f"picture?name={'x' * 300}.png"):
        assert site.request("GET", f"/labels/insects/{path}", authorization="Bearer key-of-label")[0].status == 404


def test_the_key_of_a_service_is_on_no_page_and_in_no_answer(site):
    for path in (*PAGES, *ENDPOINTS):
        reply, content = site.request("GET", path, authorization="Bearer key-of-run", accept="text/html")
        assert reply.status == 200 and SERVICE_KEY not in content.decode()
        assert all(key.split()[1] not in content.decode() for key in KEYS)


@pytest.mark.parametrize(
    "path",
    [
        "/models/bundles/.site/keys",
        "/models/bundles/..%2f..%2fetc",
        "/models/bundles//etc/passwd",
        "/api/bundles/..%2fresults",
        "/labels/insects/picture?name=..%2f..%2f..%2f.site%2fkeys%2finsects.keys",
        "/labels/insects/assets/..%2flabel.html",
        "/labels/..%2f.site/queue",
    ],
)
def test_nothing_outside_of_bundles_and_pictures_can_be_read(site, path):
    reply, content = site.request("GET", path, authorization="Bearer key-of-run")
    assert reply.status in (400, 404) and SERVICE_KEY not in content.decode()


@pytest.mark.parametrize(
    ("path", "payload"),
    [
        ("/api/deployments", {"bundle": "bundles/insects", "name": "a; rm -rf /"}),
        ("/api/deployments", {"bundle": "bundles/insects", "port": 0}),
        ("/api/deployments", {"bundle": "bundles/insects", "port": "x"}),
        ("/api/deployments", {"bundle": "$(id)"}),
        ("/api/deployments", {"bundle": "a\0b"}),
        ("/api/deployments", {"name": "x"}),
        ("/api/deployments/insects/canary", {"bundle": "bundles/insects", "share": -1}),
        ("/api/deployments/insects/adapt", {"epochs": "12; id"}),
        ("/api/deployments/insects/adapt", {"epochs": 0}),
        ("/api/deployments/insects/promote", {"bundle": 3}),
        ("/api/labels", {"name": "../x", "images": "bundles", "kind": "class"}),
        ("/api/labels", {"name": "x", "images": "bundles", "kind": "nonsense"}),
    ],
)
def test_nonsense_is_refused_in_one_sentence(site, path, payload):
    status, reply = site.api("POST", path, payload, "key-of-run")
    assert status in (400, 404) and reply["error"].count("\n") == 0 and reply["code"], json.dumps(reply)


@pytest.mark.parametrize(
    ("path", "fields", "word"),
    [
        ("/models/insects/canary", {"bundle": "bundles/insects", "percent": "many"}, "not a number"),
        ("/models/insects/canary", {"bundle": "bundles/insects", "percent": "0"}, "cannot start the canary"),
        ("/models/deploy", {"bundle": "bundles/insects", "port": "1e99"}, "cannot use this form"),
        ("/models/insects/adapt", {"epochs": "2.5"}, "cannot use this form"),
        ("/models/insects/try", {"text": ""}, "nothing was sent"),
        ("/labels", {"name": "x", "images": "nothing", "kind": "class"}, "cannot find"),
    ],
)
def test_forms_with_nonsense_say_what_is_wrong(site, path, fields, word):
    site.log_in("key-of-run")
    reply, html = site.submit(path, fields, site.csrf_token("/models/insects"))
    assert reply.status in (400, 404) and word in html
    assert site.submit(path, fields, "0" * 64)[0].status == 403
    site.cookie = ""


def test_the_buttons_of_a_deployment_name_the_bundle_that_their_reader_sees(site):
    store = DeploymentStore(site.results / ".site")
    before = store.find_deployment("insects")
    store.change_deployment("insects", lambda current: replace(current, canary="bundles/b?", previous="bundles/a"))
    html = site.page("/models/insects", authorization="Bearer key-of-run")[1]
    for action, bundle in (("promote", "bundles/b?"), ("roll-back", "bundles/a")):
        form = html.split(f'action="/models/insects/{action}"')[1].split("</form>")[0]
        assert f'name="bundle" value="{bundle}"' in form
    assert 'href="/models/bundles/bundles/b%3F"' in html
    store.change_deployment("insects", lambda _: before)
