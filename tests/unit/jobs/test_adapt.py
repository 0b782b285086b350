import json
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import numpy as np
import pytest

from equipoise.bundle.bundle import load_bundle
from equipoise.captures.capture import CapturedRequest
from equipoise.captures.store import CaptureStore
from jobs.adapt import AdaptOptions, load_verdict, main
from jobs.publishing.adaptation import training_history
from jobs.publishing.bundle_link import point_link
from jobs.publishing.drift_verdict import Verdict
from tests.support.bundles import publish_run, train_short_run

DARK = {"cause": "exposure", "detail": "darker", "value": -1.0}
DRIFT = {"state": "drift", "why": "exposure: darker", "cause": "exposure", "effects": [DARK]}


def run(*arguments):
    return main([str(one) for one in arguments])


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A bundle without what drift is told by, which most of this does without."""
    place = tmp_path_factory.mktemp("digits")
    return publish_run(train_short_run(place / "run", examples=320), place / "digits")


@pytest.fixture
def dry(digits, tmp_path, capsys):
    """A dry run on a verdict: its status, and what it said."""

    def dried(verdict, *arguments):
        path = tmp_path / "verdict.json"
        path.write_text(verdict if isinstance(verdict, str) else json.dumps(verdict))
        status = run("--bundle", digits, "--verdict", path, "--dry-run", *arguments)
        return status, capsys.readouterr()

    return dried


def test_a_link_is_pointed_elsewhere_in_one_step_and_back(digits, tmp_path, monkeypatch):
    old, new, link = tmp_path / "old", tmp_path / "new", tmp_path / "served"
    for folder in (old, new):
        folder.symlink_to(digits)
    link.symlink_to("old")  # as `ln -s old served` makes it
    monkeypatch.chdir(tmp_path.parent)
    point_link(link, new)
    assert link.readlink() == new
    assert run("--link", link, "--roll-back", "--dry-run") == 0 and link.readlink() == new
    assert run("--link", link, "--roll-back") == 0
    assert link.readlink() == old
    assert run("--bundle", "none", "--link", link, "--roll-back") == 0  # and forth
    assert link.readlink() == new


@pytest.mark.parametrize("before", ['"gone"', '""', "3", "null", "{"])
def test_a_link_is_not_pointed_back_to_what_is_no_bundle(tmp_path, before, capsys):
    (tmp_path / "served").symlink_to(tmp_path / "now")
    (tmp_path / ".served.before").write_text(before)
    assert run("--bundle", "none", "--link", tmp_path / "served", "--roll-back") == 2
    assert (tmp_path / "served").readlink() == tmp_path / "now"
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--roll-back",), "--link is missing"),
        (("--roll-back", "--link", "nowhere"), "no previous bundle is recorded"),
        (("--verdict", "v.json"), "is not a bundle"),
        (("--verdict", "v.json", "--out", "there"), "already exists"),
        (("--verdict", "v.json", "--out", "there/file/out"), "is not a writable folder"),
        (("--verdict", "v.json", "--link", "there"), "is not a symbolic link"),
        (("--verdict", "v.json", "--link", "none/link"), "is not a folder; create it first"),
        (("--verdict", "v.json", "--capture-dir", "none"), "is not a folder"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence_before_anything_is_learned(
    arguments, words, tmp_path, capsys, monkeypatch
):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    monkeypatch.chdir(tmp_path)
    assert run("--bundle", tmp_path / "none", *arguments) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_a_bundle_is_not_published_into_another(dry, digits):
    status, said = dry(DRIFT, "--out", digits / "inner")
    assert status == 2 and "would damage the bundle" in said.err


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("{", "JSON"),
        ([], "is not a verdict"),
        ({"label": "cat"}, "(state: Field required)"),
        ({"state": "drift"}, "unknown cause None; choose one of: colour temperature"),
        (DRIFT | {"cause": "gremlins"}, "unknown cause 'gremlins'"),
        (DRIFT | {"cause": []}, "(cause: "),
        (DRIFT | {"effects": None}, "(effects: "),
        (DRIFT | {"effects": [{}]}, "(effects.0.cause: "),
        (DRIFT | {"effects": [DARK | {"value": "x"}]}, "(effects.0.value: "),
        (json.dumps(DRIFT | {"effects": [DARK | {"value": float("nan")}]}), "NaN and Infinity are not allowed"),
        (DRIFT | {"effects": [DARK | {"detail": "purple"}]}, "names exposure 'purple'"),
        (DRIFT | {"effects": [{"cause": "tint", "detail": "greener", "value": 0.1}]}, "images cannot show"),
        (DRIFT | {"effects": []}, "gives no size for exposure"),
        (DRIFT | {"model": "vending"}, "is on model vending, --bundle is digits"),
        (DRIFT | {"version": "abc"}, "is on version abc"),
        (DRIFT | {"cause": "label shift", "effects": [], "classes": [1, 2]}, "(classes: "),
        (DRIFT | {"cause": "label shift", "effects": [], "classes": {"0": -1}}, "(classes.0: "),
        (DRIFT | {"cause": "label shift", "effects": [], "classes": {"cat": 9}}, "lacks its class 'cat'"),
        (DRIFT | {"cause": "label shift", "effects": [], "classes": {"0": 900}}, "no reference to compare with"),
    ],
)
def test_a_verdict_that_is_none_is_refused_in_a_sentence(dry, verdict, words):
    status, said = dry(verdict)
    assert status == 2 and words in said.err and said.err.count("\n") == 1


def test_what_would_be_done_is_said(dry):
    status, said = dry(DRIFT)
    assert (
        status == 0 and "under exposure darker -1 stops, at 40% to 140% of that size, and 0 labelled images" in said.out
    )
    status, said = dry({"state": "ok", "why": "all is well"})
    assert status == 0 and said.out == "nothing to adapt to: all is well\n"
    status, said = dry(DRIFT | {"cause": "blur", "effects": []})
    assert status == 4 and "clean or focus the lens" in said.out


def test_labels_from_before_the_drift_are_none(dry, tmp_path):
    kept, picture = CaptureStore(str(tmp_path / "kept"), 100), np.zeros((1, 16, 16), np.uint8)
    one = CapturedRequest(picture=picture, model="digits", version="1", label="7", scores={"7": 1.0})
    kept.offer(one)
    before = datetime.now(UTC).isoformat()
    kept.offer(one)
    for held in kept.list_captures(limit=None):
        kept.label_capture(held["id"], "7", ["7"])
    for at, count in ((before, 1), ("2020-01-01T00:00:00+00:00", 2)):
        status, said = dry(DRIFT | {"since": {"at": at, "images": 5}}, "--capture-dir", tmp_path / "kept")
        assert status == 0 and f"{count} labelled images" in said.out
    status, said = dry(DRIFT | {"since": {"at": "then"}}, "--capture-dir", tmp_path / "kept")
    assert status == 2 and "(since.at: " in said.err
    assert sum(kept.export_labelled(tmp_path / "out", ["7"], datetime.fromisoformat(before).timestamp()).values()) == 1


def test_labels_of_other_models_classes_are_none(dry, tmp_path):
    kept, picture = CaptureStore(str(tmp_path / "kept"), 100), np.zeros((1, 16, 16), np.uint8)
    for _ in range(45):
        kept.offer(
            CapturedRequest(picture=picture, model="pets", version="1", label="cat", scores={"cat": 0.5, "7": 0.5})
        )
    for place, one in enumerate(kept.list_captures(limit=None)):
        kept.label_capture(one["id"], "7" if place < 4 else "cat", ["cat", "7"])
    status, said = dry(DRIFT | {"cause": "features", "effects": []}, "--capture-dir", tmp_path / "kept")
    assert status == 4 and "4 labelled images" in said.out


def test_a_bundle_that_does_not_say_how_it_was_made_is_refused(digits):
    model = load_bundle(digits)
    for change in ({"config": None}, {"config": {"new": 1}}, {"remedy": {}}, {"remedy": None}):
        changed = load_bundle(digits)
        changed.manifest = model.manifest | change
        with pytest.raises(ValueError, match="publish it again"):
            training_history(changed)
    changes = [{"cause": "weather", "detail": "", "value": 1}]
    model.manifest = model.manifest | {"remedy": {"changes": changes, "weights": None}}
    with pytest.raises(ValueError, match="publish it again"):
        training_history(model)


class Odd(BaseHTTPRequestHandler):
    """A service that says what its server was given."""

    def do_GET(self):
        self.server.asked.append(self.path)
        status, body = self.server.say
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def odd():
    with HTTPServer(("127.0.0.1", 0), Odd) as server:
        server.asked = []
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("say", "words"),
    [
        ((401, b'{"error": "give an API key"}'), "answers 401: give an API key"),
        ((503, b"<html>"), "answers 503: Service Unavailable"),
        ((200, b"<html>"), "cannot get a verdict"),
        ((200, b"[]"), "is not a verdict"),
    ],
)
def test_what_the_service_says_instead_of_a_verdict_is_told(digits, odd, capsys, say, words):
    odd.say = say
    address = f"http://127.0.0.1:{odd.server_port}"
    assert run("--bundle", digits, "--service", address, "--dry-run") == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert odd.asked == ["/drift?model=digits"]


@pytest.mark.parametrize("service", ["http://127.0.0.1:1", "http://h:x", "http://a b", "nowhere"])
def test_an_address_where_nobody_answers_is_told(digits, capsys, service):
    assert run("--bundle", digits, "--service", service, "--dry-run") == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("service", "said"),
    [
        ("http://name:open-sesame@127.0.0.1:9", "has a password in it"),
        ("file:///etc/hostname", "is not an HTTP URL; give one such as"),
        ("", "is not an HTTP URL; give one such as"),
        ("http://[::1", "cannot get a verdict"),
    ],
)
def test_an_address_that_is_none_is_refused(digits, capsys, service, said):
    assert run("--bundle", digits, "--service", service, "--dry-run") == 2
    told = capsys.readouterr().err
    assert said in told and "open-sesame" not in told and told.count("\n") == 1


@pytest.mark.parametrize("key", ["none", ".", "odd"])
def test_a_key_that_is_none_is_said_to_be_the_keys_fault(digits, tmp_path, capsys, key):
    (tmp_path / "odd").write_bytes(b"open-sesame\xff")
    service = ("--service", "http://127.0.0.1:9", "--key", tmp_path / key)
    assert run("--bundle", digits, *service, "--dry-run") == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: cannot read --key {tmp_path / key}") and "open-sesame" not in told


def test_a_link_says_which_bundle(digits, tmp_path, capsys):
    (tmp_path / "served").symlink_to(digits)
    (tmp_path / "verdict.json").write_text(json.dumps(DRIFT))
    assert run("--link", tmp_path / "served", "--verdict", tmp_path / "verdict.json", "--dry-run") == 0
    assert run("--verdict", tmp_path / "verdict.json", "--dry-run") == 2
    assert "give --bundle with its bundle, or --link" in capsys.readouterr().err


def test_a_verdict_is_asked_for_once(digits, tmp_path):
    asked = AdaptOptions(bundle=str(digits))
    with pytest.raises(ValueError, match="either --service"):
        load_verdict(asked, load_bundle(digits))
    (tmp_path / "key").touch()
    with pytest.raises(ValueError, match="holds no key"):
        load_verdict(replace(asked, service="http://127.0.0.1:1", key=tmp_path / "key"), load_bundle(digits))
    assert Verdict(state="ok").effects == []
