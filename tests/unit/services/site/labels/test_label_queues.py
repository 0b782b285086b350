"""Label queues of the site: captures of deployments and folders, which are refused, and what becomes of a label."""

from dataclasses import replace

import pytest

from equipoise.bundle.folder import MANIFEST_FILE
from equipoise.captures.store import CaptureStore
from equipoise.storage.atomic import write_json
from services.site.labels.label_queues import LabelQueues, QueueBody, split_class_names
from services.site.models.deployments.deployment import Deployment
from tests.support.captures import build_request
from tests.support.errors import raises_code
from tests.support.labelling import write_pictures
from tests.support.manifests import build_manifest


@pytest.fixture
def queues(tmp_path):
    (tmp_path / "bundle").mkdir()
    write_json(tmp_path / "bundle" / MANIFEST_FILE, build_manifest(classes=["ant", "bee", "cat"]).to_json())
    write_pictures(tmp_path / "photos", 3)
    queues = LabelQueues(tmp_path)
    deployment = Deployment(name="insects", model="m", bundle="bundle", port=8001)
    queues.deployments.add_deployment(lambda _: deployment)
    store = CaptureStore(str(tmp_path / "services" / "insects" / "captures"), seed=0)
    assert store.offer(build_request(side=8))
    return queues


def add_photos(queues, **fields):
    return queues.add_folder(QueueBody(**{"name": "shelf", "images": "photos", "kind": "boxes"} | fields))


def test_captures_of_a_deployment_are_a_queue_with_the_classes_of_its_model(queues):
    (queue,) = queues.list_queues()
    assert (queue.name, queue.kind, queue.deployment, queue.total, queue.labelled) == ("insects", "class", True, 1, 0)
    opened = queues.open_session("insects").open_next("me", [])
    assert opened["queue"]["classes"] == ["ant", "bee", "cat"] and opened["document"]["guess"]["label"] == "ant"


def test_a_folder_is_added_labelled_and_removed_without_its_labels(queues, tmp_path):
    add_photos(queues, classes=["cola, water", "crisps"])
    queue = queues.list_queues()[-1]
    assert (queue.name, queue.total, queue.labels) == ("shelf", 3, "labels/shelf")
    assert queues.open_session("shelf").store.read_classes() == ("boxes", ["cola", "water", "crisps"])
    assert LabelQueues(tmp_path).find_queue("shelf").images == "photos"
    queues.remove_folder("shelf")
    assert [queue.name for queue in queues.list_queues()] == ["insects"]
    assert (tmp_path / "labels" / "shelf").is_dir()


def test_another_bundle_of_a_deployment_has_its_classes_on_the_page_at_once(queues, tmp_path):
    session = queues.open_session("insects")
    assert queues.open_session("insects") is session
    (tmp_path / "next").mkdir()
    write_json(tmp_path / "next" / MANIFEST_FILE, build_manifest(classes=["ant", "bee", "wasp"]).to_json())
    queues.deployments.change_deployment("insects", lambda current: replace(current, bundle="next"))
    assert queues.open_session("insects").store.read_classes()[1] == ["ant", "bee", "cat", "wasp"]


def test_only_a_queue_of_a_folder_is_removed(queues):
    for name in ("insects", "nothing"):
        with raises_code("path-missing", name):
            queues.remove_folder(name)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "a/b"}, "option-format"),
        ({"name": "insects"}, "path-exists"),
        ({"images": "../photos"}, "path-kind"),
        ({"images": "/etc"}, "path-kind"),
        ({"images": "nothing"}, "path-missing"),
        ({"images": "photos/000.png"}, "path-kind"),
        ({"classes": ["x" * 200]}, "class-unknown"),
    ],
)
def test_other_folders_and_names_are_refused(queues, fields, code):
    with raises_code(code):
        add_photos(queues, **fields)
    assert [queue.name for queue in queues.list_queues()] == ["insects"]


def test_a_name_is_taken_once(queues):
    add_photos(queues)
    with raises_code("path-exists", "shelf"):
        add_photos(queues)


def test_a_folder_that_is_gone_is_listed_with_the_reason(queues, tmp_path):
    add_photos(queues)
    queues.open_session("shelf")
    (tmp_path / "photos").rename(tmp_path / "elsewhere")
    assert LabelQueues(tmp_path).list_queues()[-1].problem != ""


def test_class_names_may_be_separated_by_commas_and_lines():
    assert split_class_names(["a, b\nc", "", " d "]) == ["a", "b", "c", "d"]
