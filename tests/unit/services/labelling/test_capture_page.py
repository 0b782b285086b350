"""The labelling page as part of a prediction service: its captures, its keys, and nothing else of it held up."""

import base64
import json

import pytest
from pydantic import ValidationError

from equipoise.labels.store import LabelStore
from services.labelling.capture_page import build_capture_page, require_images
from services.settings import ReplicaSettings
from tests.support.detector_service import keep_pictures, start_detector_service
from tests.support.errors import raises_code
from tests.support.square_detector import draw_squares

PICTURES = draw_squares(4, 55)[0]
KEY = "a-key-of-thirty-two-characters-.."
PASSWORD = "Basic " + base64.b64encode(f":{KEY}".encode()).decode()


@pytest.fixture
def bundle(squares_bundle):
    return squares_bundle


@pytest.fixture
def service(bundle, tmp_path):
    """Service that requires a key and has kept three requests: one of usual times, two since an alarm."""
    keep_pictures(bundle, tmp_path, PICTURES[:3], ("usual", "drift", "drift"))
    with start_detector_service(bundle.folder, tmp_path, tmp_path / "labels", (KEY,)) as started:
        yield started


def post(service, path, body, **headers):
    """Send JSON to the page and return status and reply."""
    headers = {"authorization": f"Bearer {KEY}"} | headers
    status, reply = service.send("POST", f"/label/{path}", json.dumps(body).encode(), **headers)
    return status, json.loads(reply)


def test_captures_since_an_alarm_are_labelled_first(service, bundle, tmp_path):
    names = [post(service, "next", {"holder": person, "skip": []})[1]["document"] for person in ("anna", "ben")]
    assert all(opened["picture"].startswith("drift-") for opened in names)
    (opened, other) = names
    assert opened["guess"]["boxes"] and opened["picture"].split("-")[1] > other["picture"].split("-")[1]
    third = post(service, "next", {"holder": "cem", "skip": []})[1]["document"]
    assert third["picture"].startswith("usual-")
    assert (opened["width"], opened["height"]) == (48, 48)
    box = {"label": "blue", "x": 1, "y": 2, "width": 8, "height": 8}
    size = {name: opened[name] for name in ("picture", "width", "height")}
    body = {"holder": "anna", "base_revision": 0, "author": "Anna", "boxes": [box], **size}
    assert post(service, "save", body)[1]["revision"] == 1
    stored = LabelStore(tmp_path / "labels")
    assert stored.read_labels(opened["picture"]).author == "Anna"
    assert stored.read_classes() == ("boxes", [*bundle.classes])


def test_page_is_at_a_folder_of_its_own_and_takes_the_keys_of_the_service(service):
    assert service.send("GET", "/label")[0] == 401
    assert service.send("GET", "/label", authorization=PASSWORD)[0] == 307
    for path in ("/label/", "/label/queue", "/label/assets/label.js"):
        assert service.send("GET", path)[0] == 401
        assert service.send("GET", path, authorization=PASSWORD)[0] == 200
    html = service.send("GET", "/label/", authorization=PASSWORD)[1].decode()
    assert KEY not in html and 'id="files"' not in html
    token = html.partition('data-token="')[2].partition('"')[0]
    body = {"holder": "anna", "skip": []}
    assert post(service, "next", body, authorization=f"Bearer {token}")[0] == 200
    assert service.send("GET", "/models", authorization=f"Bearer {token}")[0] == 401
    assert post(service, "upload?name=a.png", {})[0] == 404
    assert post(service, "next", body, sec_fetch_site="cross-site")[0] == 403


def test_replicas_take_the_token_of_each_other(bundle, tmp_path):
    pages = [build_capture_page(str(tmp_path), str(tmp_path / "labels"), [bundle], (KEY, "other")) for _ in range(2)]
    assert pages[0].page_token == pages[1].page_token != ""
    other = build_capture_page(str(tmp_path), str(tmp_path / "labels"), [bundle], ("other", KEY))
    assert other.page_token != pages[0].page_token


def test_requests_of_the_page_are_counted_by_their_routes(service):
    assert post(service, "next", {"holder": "a", "skip": []})[0] == 200
    assert post(service, "nothing", {})[0] == 404
    metrics = service.send("GET", "/metrics", authorization=PASSWORD)[1].decode()
    assert 'path="/label/next"' in metrics and 'path="/label"' in metrics and "nothing" not in metrics


def test_service_without_a_folder_for_labels_says_so(bundle, tmp_path):
    with start_detector_service(bundle.folder, tmp_path) as started:
        status, reply = started.send("GET", "/label")
        assert status == 404 and "label_dir" in json.loads(reply)["error"]
        assert started.send("GET", "/label/")[0] == 404


def test_folders_that_cannot_be_labelled_are_refused(tmp_path):
    for fields, code in (
        ({"label_dir": "labels"}, "option-missing"),
        ({"label_dir": "labels", "capture_dir": "s3://bucket/kept"}, "store-unsupported"),
        ({"label_dir": "s3://bucket/labels", "capture_dir": "kept"}, "store-unsupported"),
    ):
        with pytest.raises(ValidationError) as refused:
            ReplicaSettings(**fields)
        assert refused.value.errors()[0]["ctx"]["error"].code == code
    settings = ReplicaSettings(label_dir=str(tmp_path / "labels"), capture_dir=str(tmp_path / "kept"))
    settings.require_usable_folders()
    with raises_code("option-conflict", "only table"):
        require_images({"table"})
    require_images({"table", "boxes"})
    require_images(set())
