"""Drift on the running service: clean requests, a blurred lens, a monitor that is killed, requests kept for labels."""

import io
import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
from PIL import Image

from equipoise.drift.charts.cusum import MIN_STEP_IMAGES
from equipoise.drift.corruptions import blur_images
from jobs.check import main
from jobs.cluster.processes import wait_until
from tests.serving.conftest import started
from tests.support.chromium import WIDTHS, find_accessibility_violations, find_overflowing_elements
from tests.support.ray_cluster import list_descendants


class Hook(BaseHTTPRequestHandler):
    """Keeps what it is told."""

    def do_POST(self):
        self.server.told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        """Nothing: its users read what was told."""


@pytest.fixture(scope="module")
def hook():
    server = HTTPServer(("127.0.0.1", 0), Hook)
    server.told = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def watched(stage, cluster, hook, watched_digits, tmp_path_factory):
    place = tmp_path_factory.mktemp("watched")
    arguments = (
        "report_seconds=0.2",
        f"webhook=http://127.0.0.1:{hook.server_port}",
        f"capture_dir={place / 'kept'}",
        "max_captures=40",
    )
    return stage.show("watched", lambda: started(cluster, [watched_digits], place / "log", *arguments))


def drawn(pictures, count, seed):
    return pictures[np.random.default_rng(seed).integers(0, len(pictures), count)]


def send(service, pictures, **headers):
    """Ask for a label of each picture."""
    for picture in pictures:
        file = io.BytesIO()
        Image.fromarray(picture[0].numpy()).save(file, "PNG")
        service.json("POST", "/predict", file.getvalue(), content_type="image/png", **headers)


def verdict(service, answered):
    """Once the monitor knows of so many pictures."""
    return wait_until(lambda: (found := service.json("GET", "/drift"))["images"] >= answered and found, 20)


def alarms(service):
    return [one for one in service.json("GET", "/drift/history")["events"] if one["event"] == "alarm"]


def test_clean_requests_are_ok_and_a_blurred_lens_is_named(watched, digits, hook):
    send(watched, drawn(digits, 400, 1))
    found = verdict(watched, 400)
    assert (found["state"], found["cause"], found["since"], alarms(watched)) == ("ok", None, None, [])
    send(watched, blur_images(drawn(digits, 200, 2), 0.8))
    found = verdict(watched, 600)
    assert (found["state"], found["cause"]) == ("drift", "blur"), found["why"]
    assert abs(found["since"]["images"] - 200) <= 40
    assert {"name", "value", "threshold", "effect"} <= found["charts"][0].keys()
    (alarm,) = alarms(watched)
    assert alarm["cause"] == "blur"
    wait_until(lambda: hook.told, 20)
    assert [one["cause"] for one in hook.told] == ["blur"]
    _, _, counts = watched.ask("GET", "/metrics")
    assert f'equipoise_drift{{model="digits",version="{found["version"]}"}} 1.0' in counts.decode()


def test_charts_begin_anew_when_they_are_asked_to(watched, digits):
    before = watched.json("GET", "/drift")
    for path in (
        "/drift/reset",
        "/capture/labels",
        f"/capture/{'0' * 16}/label",
    ):  # as a browser says it of a foreign page
        assert watched.ask("POST", path, b"", sec_fetch_site="cross-site")[0] == 403
    assert watched.json("GET", "/drift")["state"] == before["state"]
    assert watched.json("POST", "/drift/reset", sec_fetch_site="same-origin")["reset"]
    assert watched.json("GET", "/drift")["state"] == "unknown"
    send(watched, drawn(digits, 100, 3))
    assert verdict(watched, 100)["state"] == "ok"
    assert before["version"] == watched.json("GET", "/drift")["version"]
    assert watched.json("GET", "/drift/history")["events"][-1]["event"] == "reset"


def test_a_killed_monitor_goes_on_where_it_was_and_counts_nothing_twice(watched, cluster, digits):
    watched.json("POST", "/drift/reset")
    send(watched, drawn(digits, 100, 4))
    wait_until(lambda: watched.json("GET", "/drift")["images"] >= 100, 20)
    (monitor,) = [pid for pid, command in list_descendants(cluster.head_pid).items() if "ray::Drift" in command]
    os.kill(monitor, signal.SIGKILL)
    send(watched, drawn(digits, 200, 5))
    found = wait_until(lambda: answered(watched) >= 300 and watched.json("GET", "/drift"), 60)
    assert found["images"] == 300 and found["state"] == "ok" and found["ticks"]["lost"] == 0
    assert "monitor restarted" in [one["event"] for one in watched.json("GET", "/drift/history")["events"]]


def answered(service):
    """Pictures that the monitor knows of; none while it is being restarted."""
    status, _, body = service.ask("GET", "/drift")
    assert status in (200, 503)
    return json.loads(body).get("images", 0)


def test_each_source_has_charts_of_its_own(watched, digits):
    watched.json("POST", "/drift/reset")
    for seed in range(6):
        send(watched, drawn(digits, 20, 10 + seed), x_source="hall")
        send(watched, blur_images(drawn(digits, 20, 20 + seed), 0.8), x_source="yard")
    found = wait_until(lambda: (one := verdict(watched, 240)).get("sources", {}).keys() >= {"hall", "yard"} and one, 20)
    assert found["sources"]["hall"]["state"] == "ok"
    assert (found["sources"]["yard"]["state"], found["sources"]["yard"]["cause"]) == ("drift", "blur")


def test_some_requests_are_kept_and_take_labels(watched, digits):
    kept = wait_until(lambda: watched.json("GET", "/capture")["captures"], 20)
    assert all({"id", "label", "score", "label_given"} <= one.keys() for one in kept)
    status, headers, body = watched.ask("GET", f"/capture/{kept[0]['id']}")
    assert (status, headers["content-type"]) == (200, "image/png")
    assert Image.open(io.BytesIO(body)).size == (16, 16)
    assert watched.json("POST", f"/capture/{kept[0]['id']}/label", {"label": "7"})["label_given"] == "7"
    table = f"id,label\n{kept[1]['id']},3\n".encode()
    assert watched.json("POST", "/capture/labels", table, content_type="text/csv") == {"labelled": 1}
    given = {one["id"]: one["label_given"] for one in watched.json("GET", "/capture?limit=1000")["captures"]}
    assert (given[kept[0]["id"]], given[kept[1]["id"]]) == ("7", "3")


def test_a_folder_of_pictures_is_judged_without_a_service(watched, digits, tmp_path, capsys):
    for name, pictures in (("clean", drawn(digits, 120, 30)), ("blurred", blur_images(drawn(digits, 120, 31), 0.8))):
        (tmp_path / name).mkdir()
        for place, picture in enumerate(pictures):
            Image.fromarray(picture[0].numpy()).save(tmp_path / name / f"{place}.png")

    def checked(*arguments):
        status = main(["--bundle", str(watched.bundle), "--images", *map(str, arguments)])
        return status, capsys.readouterr()

    status, said = checked(tmp_path / "clean", "--json")
    found = json.loads(said.out)
    assert (status, found["state"], found["cause"], found["images"]) == (0, "ok", None, 120)
    assert found["accuracy"]["low"] <= found["accuracy"]["value"] <= found["accuracy"]["high"]
    status, said = checked(tmp_path / "blurred", "--json")
    found = json.loads(said.out)
    assert (status, found["state"], found["cause"]) == (3, "drift", "blur")
    assert {"unit", "low", "high"} <= found["charts"][0]["effect"].keys()
    status, said = checked(tmp_path / "blurred")
    assert status == 3 and said.out.startswith("drift: blur")
    for path in sorted((tmp_path / "clean").iterdir())[20:]:
        path.unlink()
    (tmp_path / "clean" / "torn.png").write_bytes(b"\x89PNG")
    status, said = checked(tmp_path / "clean", "--json")
    assert (status, json.loads(said.out)["state"]) == (4, "unknown") and "torn.png" in said.err
    status, said = checked(tmp_path / "nowhere")
    assert status == 2 and "is not a folder" in said.err


@pytest.mark.parametrize(
    ("verb", "path", "body", "status", "words"),
    [
        ("GET", "/drift?model=nobody", None, 404, "there is no model"),
        ("GET", "/capture/0000000000000000", None, 404, "no capture"),
        ("GET", "/capture/..%2f..%2fetc", None, 404, ""),
        ("GET", "/capture?pool=all", None, 400, "pool must be one of"),
        ("GET", f"/capture?limit={'9' * 5000}", None, 400, "up to 1000"),
        ("POST", "/capture/0000000000000000/label", b'{"label": "3"}', 404, "no capture"),
        ("POST", "/capture/labels", b"id,label\nxyz,3\n", 400, ""),
        ("POST", "/capture/labels", b"\xff\xfe", 400, "UTF-8"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(watched, verb, path, body, status, words):
    found, _, reply = watched.ask(verb, path, body)
    assert found == status and words in json.loads(reply)["error"], reply


def test_a_label_of_no_class_changes_nothing(watched):
    kept = watched.json("GET", "/capture")["captures"][-1]
    status, _, body = watched.ask("POST", f"/capture/{kept['id']}/label", b'{"label": "cat"}')
    assert status == 400 and "cat" in json.loads(body)["error"]
    same = [one for one in watched.json("GET", "/capture?limit=1000")["captures"] if one["id"] == kept["id"]]
    assert same[0]["label_given"] == kept["label_given"]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_follows_what_is_asked_without_a_reload(watched, digits, browser, width):
    watched.json("POST", "/drift/reset")
    send(watched, drawn(digits, 100, 7))
    verdict(watched, 100)
    with browser.page(f"http://127.0.0.1:{watched.port}/", width) as page:
        page.evaluate("() => { window.before = true; }")
        assert page.locator("#digits-verdict").inner_text().split()[1] == "ok"
        answered = page.locator("#service dd").first
        count = int(answered.inner_text().replace(",", ""))
        send(watched, blur_images(drawn(digits, 200, 8), 0.8))
        page.wait_for_function("name => document.querySelector(name).innerText.includes('blur')", arg="#digits-verdict")
        page.wait_for_function(
            "count => Number(document.querySelector('#service dd').innerText.replace(',', '')) >= count",
            arg=count + 200,
        )
        assert page.evaluate("() => window.before"), "the page was loaded anew"
        page.wait_for_function(
            "() => document.querySelectorAll('#digits-charts-panel .scatterlayer .trace').length > 5"
        )
        page.wait_for_selector("section:has-text('images') img")
        assert find_overflowing_elements(page) == [] and find_accessibility_violations(page) == []


def test_how_high_charts_were_is_told_step_by_step(watched, digits):
    watched.json("POST", "/drift/reset")
    for place in range(4):  # each is reported before the next is sent
        send(watched, blur_images(drawn(digits, 64, 30 + place), 0.8))
        verdict(watched, 64 * (place + 1))
    found = watched.json("GET", "/drift/charts")
    steps = len(found["images"])
    assert steps > 3 and found["images"] == sorted(found["images"])
    assert 0 <= 256 - found["images"][-1] < MIN_STEP_IMAGES, "fewer pictures than a step wait for those that come next"
    assert {len(values) for values in found["charts"].values()} == {steps} == {len(found["threshold"])}
    assert max(map(max, found["charts"].values())) > found["threshold"][-1] > 0
