"""The API of the labelling page on a real port: what the page and programs that label may do."""

import base64
import contextlib
import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from PIL import Image

from equipoise.labels.store import LabelStore
from equipoise.storage.atomic import write_json
from jobs.cluster.processes import wait_until
from services.labelling.application import ASSET_TYPES
from services.labelling.server import LabellingSettings, start_labelling
from tests.support.errors import raises_code
from tests.support.labelling import CLASSES, build_guess, serve_labelling, write_pictures, write_shelf
from tests.support.small_disk import mount_small_disk

MAX_PAGE_BYTES = 100_000


@pytest.fixture
def page(tmp_path):
    """Client of a page on three pictures; the first two have a guess."""
    write_pictures(tmp_path / "photos", 3)
    write_json(tmp_path / "guesses.json", {"000.png": build_guess(0, 0.9), "001.png": build_guess(1, 0.4)})
    with serve_labelling(tmp_path, guesses=tmp_path / "guesses.json") as client:
        yield client


def without_score(boxes):
    return [{name: box[name] for name in ("label", "x", "y", "width", "height")} for box in boxes]


def test_guess_is_accepted_and_the_next_picture_follows(page, tmp_path):
    opened = page.next("anna")
    assert (opened["picture"], opened["revision"], opened["is_taken"]) == ("001.png", 0, False)
    boxes = without_score(opened["guess"]["boxes"])
    status, saved = page.save("anna", opened, boxes=boxes, author="Anna")
    assert (status, saved["revision"], saved["author"]) == (200, 1, "Anna")
    stored = LabelStore(tmp_path / "labels").read_labels("001.png")
    assert [(box.label, box.x, box.width) for box in stored.boxes] == [("crisps", 11.0, 30.0)]
    assert page.next("anna")["picture"] == "000.png"
    queue = page.get("/queue?holder=anna")[1]
    assert queue["pictures"] == ["000.png", "002.png", "001.png"]
    assert (queue["total"], queue["labelled"], queue["with_others"], queue["classes"]) == (3, 1, 0, [*CLASSES])


def test_second_save_of_the_same_revision_gets_the_first_ones_labels(page):
    opened = page.next("anna")
    assert page.save("anna", opened, boxes=[], author="Anna")[0] == 200
    status, reply = page.save("ben", opened, boxes=without_score(opened["guess"]["boxes"]), author="Ben")
    assert status == 409 and reply["current"] == {"revision": 1, "author": "Anna", "boxes": [], "label": None}
    status, reply = page.save("ben", opened | {"revision": 1}, boxes=[], author="Ben")
    assert (status, reply["revision"]) == (200, 2)
    assert page.get("/labels?name=001.png")[1]["author"] == "Ben"


def test_two_people_get_different_pictures_and_a_closed_page_returns_its_own(page):
    assert [page.next(person)["picture"] for person in ("anna", "ben")] == ["001.png", "000.png"]
    assert page.post("/open", {"holder": "ben", "picture": "001.png"})[1]["is_taken"]
    assert page.post("/renew", {"holder": "anna", "picture": "001.png"})[1] == {"is_taken": False}
    assert page.post("/renew", {"holder": "ben", "picture": "001.png"})[1] == {"is_taken": True}
    assert page.post("/release", {"holder": "anna"}) == (200, {})
    assert page.next("cem", skip=["002.png"])["picture"] == "001.png"


@pytest.mark.parametrize(
    ("path", "payload", "status"),
    [
        ("/next", {"skip": []}, 400),
        ("/next", {"holder": "", "skip": []}, 400),
        ("/next", b"{", 400),
        ("/open", {"holder": "a", "picture": "../x.png"}, 404),
        ("/open", {"holder": "a", "picture": "missing.png"}, 404),
        ("/classes", {"name": "  "}, 400),
        ("/upload?name=a.png", b"no picture", 400),
        ("/none", {}, 404),
        ("/queue", {}, 405),
    ],
)
def test_requests_that_cannot_be_understood_are_rejected_in_a_sentence(page, path, payload, status):
    got, reply = page.post(path, payload)
    assert got == status and len(reply["error"]) > 10


BOX = {"label": "cola", "x": 1, "y": 2, "width": 3, "height": 4}


@pytest.mark.parametrize(
    "labels",
    [
        {"boxes": [BOX | {"label": "unknown"}]},
        {"boxes": [BOX | {"x": 119}]},
        {"boxes": [BOX | {"width": 0}]},
        {"boxes": [BOX | {"x": "left"}]},
        {"label": "cola"},
        {},
        {"boxes": [], "width": 60},
        {"boxes": [], "author": "x" * 101},
    ],
)
def test_impossible_labels_are_rejected_and_nothing_is_written(page, tmp_path, labels):
    opened = page.next("anna")
    status, reply = (
        page.save("anna", opened, **{"boxes": None} | labels)
        if "width" not in labels
        else page.post(
            "/save",
            {"holder": "anna", "picture": "001.png", "width": 60, "height": 90, "base_revision": 0, "boxes": []},
        )
    )
    assert status == 400 and reply["error"]
    assert LabelStore(tmp_path / "labels").list_labelled() == set()


def test_pages_of_other_sites_can_change_nothing(page):
    status, _ = page.post("/next", {"holder": "a", "skip": []}, sec_fetch_site="cross-site")
    assert status == 403
    assert page.post("/upload?name=a.png", b"", sec_fetch_site="cross-site")[0] == 403


def test_class_and_picture_are_added(page, tmp_path):
    assert page.post("/classes", {"name": " eau gazeuse "})[1]["classes"] == [*CLASSES, "eau gazeuse"]
    buffer = io.BytesIO()
    Image.new("RGB", (50, 40)).save(buffer, "JPEG")
    status, reply = page.post("/upload?name=new.jpg", buffer.getvalue(), content_type="application/octet-stream")
    assert status == 200 and (tmp_path / "photos" / reply["picture"]).read_bytes() == buffer.getvalue()
    assert reply["picture"] in page.get("/queue")[1]["pictures"]
    status, copy = page.request("GET", f"/picture?name={reply['picture']}")
    assert status == 200 and Image.open(io.BytesIO(copy)).size == (50, 40)


def fill_disk(folder):
    with (folder / "full").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(512))


def test_full_disk_is_named_and_what_was_drawn_can_be_saved_once_there_is_room(tmp_path):
    image = io.BytesIO()
    Image.effect_noise((90, 90), 50).save(image, "PNG")
    with mount_small_disk(tmp_path / "disk", "64k") as disk:
        write_pictures(disk / "photos", 3)
        with serve_labelling(disk) as page:
            opened = page.next("anna")
            fill_disk(disk)
            for status, reply in (
                page.post("/next", {"holder": "ben", "skip": []}),
                page.post("/release", {"holder": "anna"}),
                page.post("/upload?name=a.png", image.getvalue(), content_type="application/octet-stream"),
                page.save("anna", opened, boxes=[]),
            ):
                assert status == 507 and "No space left" in reply["error"] and str(disk) in reply["error"]
            (disk / "full").unlink()
            assert page.save("anna", opened, boxes=[])[1]["revision"] == 1


def test_page_is_small_and_may_load_only_its_own_files(page):
    status, html = page.request("GET", "/")
    assets = [page.request("GET", f"/assets/{name}") for name in ASSET_TYPES]
    assert status == 200 and all(status == 200 for status, _ in assets)
    assert len(html) + sum(len(content) for _, content in assets) < MAX_PAGE_BYTES
    assert page.request("GET", "/assets/page.html")[0] == 404
    assert all(f"assets/{name}".encode() in html or name.endswith(".js") for name in ASSET_TYPES)


def test_api_key_is_the_password_and_the_page_gets_a_token_for_what_it_sends(tmp_path):
    write_pictures(tmp_path / "photos", 1)
    (tmp_path / "keys").write_text("secret\n")
    (tmp_path / "keys").chmod(0o600)
    with serve_labelling(tmp_path, api_keys_file=str(tmp_path / "keys")) as page:
        for path in ("/", "/queue", "/picture?name=000.png", "/assets/label.js"):
            assert page.request("GET", path)[0] == 401
        password = "Basic " + base64.b64encode(b":secret").decode()
        status, html = page.request("GET", "/", authorization=password)
        assert status == 200 and b"secret" not in html
        token = html.decode().partition('data-token="')[2].partition('"')[0]
        body = {"holder": "anna", "skip": []}
        assert page.post("/next", body, authorization=password)[0] == 401  # other sites' pages send passwords too
        assert page.post("/next", body, authorization=f"Bearer {token}")[1]["document"]["picture"] == "000.png"
        assert page.post("/next", body, authorization="Bearer secret")[0] == 200
        assert page.post("/next", body, authorization="Bearer ")[0] == 401


class PredictHandler(BaseHTTPRequestHandler):
    """A service that sees a box in every picture, and is less certain of larger ones."""

    def do_POST(self):
        with Image.open(io.BytesIO(self.rfile.read(int(self.headers["content-length"])))) as image:
            reply = json.dumps(build_guess(0, round(84 / image.width, 2))).encode()
        self.send_response(200 if self.path == "/predict" else 404)
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


@pytest.fixture
def service():
    """A running service of a model of boxes."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), PredictHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_running_service_gives_the_first_guess_and_a_silent_one_none(service, tmp_path):
    write_pictures(tmp_path / "photos", 2)
    url = f"http://127.0.0.1:{service.server_port}/"
    with serve_labelling(tmp_path, service=url, classes=(), guess_ahead=False) as page:
        opened = page.next("anna")
        assert opened["guess"] == build_guess(0, 0.7)
        assert page.get("/queue")[1]["classes"] == ["cola"]
        service.shutdown()
        service.server_close()
        page.save("anna", opened, boxes=[])
        opened = page.next("anna")
        assert opened["picture"] == "001.png" and opened["guess"] is None


def test_picture_of_which_the_service_is_least_certain_comes_first(service, tmp_path):
    write_pictures(tmp_path / "photos", 3)
    write_shelf(tmp_path / "photos" / "z.png", [], size=(200, 100))
    with serve_labelling(tmp_path, service=f"http://127.0.0.1:{service.server_port}") as page:
        wait_until(lambda: page.get("/queue")[1]["pictures"][0] == "z.png", 20)
        assert page.next("anna")["guess"] == build_guess(0, 0.42)


def test_guesses_of_classes_that_were_not_chosen_are_left_out(tmp_path):
    write_pictures(tmp_path / "photos", 2)
    write_json(tmp_path / "guesses.json", {f"00{number}.png": build_guess(number) for number in range(2)})
    with serve_labelling(tmp_path, classes=("cola",), guesses=tmp_path / "guesses.json") as page:
        assert page.get("/queue")[1]["classes"] == ["cola"]
        guesses = {
            name: page.post("/open", {"holder": "a", "picture": name})[1]["guess"] for name in ("000.png", "001.png")
        }
        assert len(guesses["000.png"]["boxes"]) == 1 and guesses["001.png"]["boxes"] == []


def test_pictures_get_a_class_each(tmp_path):
    write_pictures(tmp_path / "photos", 2)
    write_json(tmp_path / "guesses.json", {"001.png": {"label": "water", "score": 0.8}})
    with serve_labelling(tmp_path, kind="class", guesses=tmp_path / "guesses.json") as page:
        opened = page.next("anna")
        assert opened["picture"] == "001.png" and opened["guess"] == {"label": "water", "score": 0.8}
        assert page.save("anna", opened, label="cola")[1]["label"] == "cola"
        assert page.save("anna", page.next("anna"), boxes=[])[0] == 400


def test_port_that_another_program_has_is_refused(page, tmp_path):
    settings = {"images": tmp_path / "photos", "labels": tmp_path / "labels", "kind": "boxes", "port": page.port}
    with raises_code("port-in-use"):
        start_labelling(LabellingSettings(**settings))
