"""Drift detection on the running service: clean and blurred images, a killed monitor, captures and their labels."""

import io
import json
import os
import signal

import numpy as np
import pytest
from PIL import Image

from equipoise.drift.charts.cusum import MIN_STEP_IMAGES
from equipoise.drift.corruptions import blur_images
from jobs.check import main
from jobs.cluster.processes import wait_until
from tests.serving.conftest import start_service
from tests.support.chromium import WIDTHS, find_accessibility_violations, find_overflowing_elements
from tests.support.ray_cluster import list_descendants

STATE_ON_PAGE = "document.querySelector('#digits-verdict').innerText.split(/\\s+/)[1]"


@pytest.fixture(scope="module")
def monitored_service(service_slot, cluster, webhook, monitored_digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    arguments = (
        "report_seconds=0.2",
        "drift_time_fraction=1",  # how many are skipped otherwise depends on how fast the machine is
        f"webhook=http://127.0.0.1:{webhook.server_port}",
        f"capture_dir={folder / 'kept'}",
        "max_captures=40",
    )
    return service_slot.use("monitored", lambda: start_service(cluster, [monitored_digits], folder / "log", *arguments))


def sample_images(images, count, seed):
    return images[np.random.default_rng(seed).integers(0, len(images), count)]


def predict_images(service, images, **headers):
    """Request a prediction for each image."""
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image[0].numpy()).save(file, "PNG")
        service.request_json("POST", "/predict", file.getvalue(), content_type="image/png", **headers)


def wait_for_verdict(service, min_images):
    """Return the verdict as soon as the monitor has counted at least `min_images`."""
    return wait_until(
        lambda: (verdict := service.request_json("GET", "/drift"))["images"] >= min_images and verdict, 20
    )


def read_alarms(service):
    return [event for event in service.request_json("GET", "/drift/history")["events"] if event["event"] == "alarm"]


def test_clean_images_are_ok_and_blur_is_named_as_cause(monitored_service, digit_images, webhook):
    webhook.messages.clear()
    predict_images(monitored_service, sample_images(digit_images, 400, 1))
    verdict = wait_for_verdict(monitored_service, 400)
    assert (verdict["state"], verdict["cause"], verdict["since"], read_alarms(monitored_service)) == (
        "ok",
        None,
        None,
        [],
    )
    predict_images(monitored_service, blur_images(sample_images(digit_images, 200, 2), 0.8))
    verdict = wait_for_verdict(monitored_service, 600)
    assert (verdict["state"], verdict["cause"]) == ("drift", "blur"), verdict["why"]
    assert abs(verdict["since"]["images_ago"] - 200) <= 40
    assert {"name", "value", "threshold", "effect"} <= verdict["charts"][0].keys()
    (alarm,) = read_alarms(monitored_service)
    assert alarm["cause"] == "blur"
    wait_until(lambda: webhook.messages, 20)
    assert [message["cause"] for message in webhook.messages] == ["blur"]
    _, _, metrics = monitored_service.request("GET", "/metrics")
    assert f'equipoise_drift{{model="digits",version="{verdict["version"]}"}} 1.0' in metrics.decode()


def test_reset_restarts_charts_and_is_refused_across_sites(monitored_service, digit_images):
    before = monitored_service.request_json("GET", "/drift")
    for path in (
        "/drift/reset",
        "/capture/labels",
        f"/capture/{'0' * 16}/label",
    ):  # with the header that a browser sends from a page of another site
        assert monitored_service.request("POST", path, b"", sec_fetch_site="cross-site")[0] == 403
    assert monitored_service.request_json("GET", "/drift")["state"] == before["state"]
    assert monitored_service.request_json("POST", "/drift/reset", sec_fetch_site="same-origin")["reset"]
    assert monitored_service.request_json("GET", "/drift")["state"] == "unknown"
    predict_images(monitored_service, sample_images(digit_images, 100, 3))
    assert wait_for_verdict(monitored_service, 100)["state"] == "ok"
    assert before["version"] == monitored_service.request_json("GET", "/drift")["version"]
    assert monitored_service.request_json("GET", "/drift/history")["events"][-1]["event"] == "reset"


def test_killed_monitor_resumes_and_counts_no_image_twice(monitored_service, cluster, digit_images):
    monitored_service.request_json("POST", "/drift/reset")
    predict_images(monitored_service, sample_images(digit_images, 100, 4))
    wait_until(lambda: monitored_service.request_json("GET", "/drift")["images"] >= 100, 20)
    (monitor,) = [pid for pid, command in list_descendants(cluster.head_pid).items() if "ray::Drift" in command]
    os.kill(monitor, signal.SIGKILL)
    predict_images(monitored_service, sample_images(digit_images, 200, 5))
    verdict = wait_until(
        lambda: count_monitored_images(monitored_service) >= 300 and monitored_service.request_json("GET", "/drift"),
        60,
    )
    assert verdict["images"] == 300 and verdict["state"] == "ok" and verdict["ticks"]["lost"] == 0
    events = monitored_service.request_json("GET", "/drift/history")["events"]
    assert "monitor restarted" in [event["event"] for event in events]


def count_monitored_images(service):
    """Return the number of images that the monitor has counted; 0 while it is being restarted."""
    status, _, body = service.request("GET", "/drift")
    assert status in (200, 503)
    return json.loads(body).get("images", 0)


def test_each_source_has_its_own_charts(monitored_service, digit_images):
    monitored_service.request_json("POST", "/drift/reset")
    for seed in range(6):
        predict_images(monitored_service, sample_images(digit_images, 20, 10 + seed), x_source="hall")
        predict_images(monitored_service, blur_images(sample_images(digit_images, 20, 20 + seed), 0.8), x_source="yard")
    verdict = wait_until(
        lambda: (
            (current := wait_for_verdict(monitored_service, 240)).get("sources", {}).keys() >= {"hall", "yard"}
            and current
        ),
        20,
    )
    assert verdict["sources"]["hall"]["state"] == "ok"
    assert (verdict["sources"]["yard"]["state"], verdict["sources"]["yard"]["cause"]) == ("drift", "blur")


def test_captured_images_can_be_read_and_labelled(monitored_service, digit_images):
    captures = wait_until(lambda: monitored_service.request_json("GET", "/capture")["captures"], 20)
    assert all({"id", "label", "score", "label_given"} <= capture.keys() for capture in captures)
    status, headers, body = monitored_service.request("GET", f"/capture/{captures[0]['id']}")
    assert (status, headers["content-type"]) == (200, "image/png")
    assert Image.open(io.BytesIO(body)).size == (16, 16)
    path = f"/capture/{captures[0]['id']}/label"
    assert monitored_service.request_json("POST", path, {"label": "7"})["label_given"] == "7"
    table = f"id,label\n{captures[1]['id']},3\n".encode()
    reply = monitored_service.request_json("POST", "/capture/labels", table, content_type="text/csv")
    assert reply == {"labelled": 1}
    captures_after = monitored_service.request_json("GET", "/capture?limit=1000")["captures"]
    labels = {capture["id"]: capture["label_given"] for capture in captures_after}
    assert (labels[captures[0]["id"]], labels[captures[1]["id"]]) == ("7", "3")


def test_check_command_judges_a_folder_of_images(monitored_service, digit_images, tmp_path, capsys):
    samples = (
        ("clean", sample_images(digit_images, 120, 30)),
        ("blurred", blur_images(sample_images(digit_images, 120, 31), 0.8)),
    )
    for name, images in samples:
        (tmp_path / name).mkdir()
        for index, image in enumerate(images):
            Image.fromarray(image[0].numpy()).save(tmp_path / name / f"{index}.png")

    def run_check(*arguments):
        status = main(["--bundle", str(monitored_service.bundle), "--data", *map(str, arguments)])
        return status, capsys.readouterr()

    status, output = run_check(tmp_path / "clean", "--json")
    verdict = json.loads(output.out)
    assert (status, verdict["state"], verdict["cause"], verdict["images"]) == (0, "ok", None, 120)
    assert verdict["accuracy"]["low"] <= verdict["accuracy"]["value"] <= verdict["accuracy"]["high"]
    status, output = run_check(tmp_path / "blurred", "--json")
    verdict = json.loads(output.out)
    assert (status, verdict["state"], verdict["cause"]) == (3, "drift", "blur")
    assert {"unit", "low", "high"} <= verdict["charts"][0]["effect"].keys()
    status, output = run_check(tmp_path / "blurred")
    assert status == 3 and output.out.startswith("drift: blur")
    for path in sorted((tmp_path / "clean").iterdir())[20:]:
        path.unlink()
    (tmp_path / "clean" / "torn.png").write_bytes(b"\x89PNG")
    status, output = run_check(tmp_path / "clean", "--json")
    assert (status, json.loads(output.out)["state"]) == (4, "unknown") and "torn.png" in output.err
    status, output = run_check(tmp_path / "nowhere")
    assert status == 2 and "is not a folder" in output.err


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
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
def test_invalid_request_is_rejected_with_its_reason(monitored_service, method, path, body, status, message):
    reply_status, _, reply = monitored_service.request(method, path, body)
    assert reply_status == status and message in json.loads(reply)["error"], reply


def test_label_of_unknown_class_changes_nothing(monitored_service):
    capture = monitored_service.request_json("GET", "/capture")["captures"][-1]
    status, _, body = monitored_service.request("POST", f"/capture/{capture['id']}/label", b'{"label": "cat"}')
    assert status == 400 and "cat" in json.loads(body)["error"]
    captures_after = monitored_service.request_json("GET", "/capture?limit=1000")["captures"]
    same_capture = [entry for entry in captures_after if entry["id"] == capture["id"]]
    assert same_capture[0]["label_given"] == capture["label_given"]


@pytest.mark.parametrize("width", WIDTHS)
def test_status_page_follows_requests_without_reload(monitored_service, digit_images, browser, width):
    monitored_service.request_json("POST", "/drift/reset")
    predict_images(monitored_service, sample_images(digit_images, 100, 7))
    wait_for_verdict(monitored_service, 100)
    with browser.page(f"http://127.0.0.1:{monitored_service.port}/", width) as page:
        page.evaluate("() => { window.before = true; }")
        page.wait_for_function(f"() => {STATE_ON_PAGE} === 'ok'")  # at first it may be the page of a second ago
        request_count = page.locator("#service dd").first
        count_before = int(request_count.inner_text().replace(",", ""))
        predict_images(monitored_service, blur_images(sample_images(digit_images, 200, 8), 0.8))
        page.wait_for_function("name => document.querySelector(name).innerText.includes('blur')", arg="#digits-verdict")
        page.wait_for_function(
            "count => Number(document.querySelector('#service dd').innerText.replace(',', '')) >= count",
            arg=count_before + 200,
        )
        assert page.evaluate("() => window.before"), "the page was reloaded"
        page.wait_for_function(
            "() => document.querySelectorAll('#digits-charts-panel .scatterlayer .trace').length > 5"
        )
        page.wait_for_selector("section:has-text('images') img")
        assert find_overflowing_elements(page) == [] and find_accessibility_violations(page) == []
    wait_for_verdict(monitored_service, 300)  # a report still to come would count after the next reset


def test_chart_history_has_a_value_for_each_step(monitored_service, digit_images):
    monitored_service.request_json("POST", "/drift/reset")
    for index in range(4):  # each batch is reported before the next is sent
        predict_images(monitored_service, blur_images(sample_images(digit_images, 64, 30 + index), 0.8))
        wait_for_verdict(monitored_service, 64 * (index + 1))
    history = monitored_service.request_json("GET", "/drift/charts")
    steps = len(history["image_numbers"])
    assert steps > 3 and history["image_numbers"] == sorted(history["image_numbers"])
    assert 0 <= 256 - history["image_numbers"][-1] < MIN_STEP_IMAGES, "only images short of a full step may be missing"
    assert {len(values) for values in history["charts"].values()} == {steps} == {len(history["threshold"])}
    assert max(map(max, history["charts"].values())) > history["threshold"][-1] > 0
