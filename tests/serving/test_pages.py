"""Served pages of runs: new files on disk appear on an open page without a reload."""

import json
from dataclasses import replace
from http.client import HTTPConnection

import pytest

from equipoise.storage.atomic import write_json
from jobs.cluster.processes import find_free_ports, wait_until
from tests.serving.conftest import SERVE_COMMAND
from tests.support.ray_cluster import PATIENCE_SECONDS
from tests.support.sweep_folders import write_sweep_folder, write_system_csv
from tests.unit.dashboards.test_training_run import record


@pytest.fixture(scope="module")
def runs_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "runs"
    write_json(folder / "one" / "record.json", record().to_json())
    write_sweep_folder(folder / "swept")
    (folder / "going").mkdir()
    (folder / "going" / "trial.json").write_text(json.dumps({"workload": "digits"}))
    write_system_csv(folder / "going" / "system.csv")
    return folder


@pytest.fixture(scope="module")
def port(service_slot, cluster, runs_folder, tmp_path_factory):
    service_slot.clear()
    (port,) = find_free_ports(1)
    log = tmp_path_factory.mktemp("pages") / "log"
    process = cluster.start(
        SERVE_COMMAND, "run", "services.pages:build", f"runs={runs_folder}", f"port={port}", log=log
    )
    try:
        wait_until(lambda: process.poll() is None and is_live(port), PATIENCE_SECONDS)
        assert f"will answer at http://127.0.0.1:{port}/" in log.read_text()
        wait_until(lambda: f"\nanswers at http://127.0.0.1:{port}/ until Ctrl-C" in log.read_text(), PATIENCE_SECONDS)
        assert f"is ready at http://127.0.0.1:{port}/." in log.read_text()
        yield port
    finally:
        cluster.shut_down_serve()
        process.terminate()
        process.wait(timeout=PATIENCE_SECONDS)


def is_live(port):
    try:
        return fetch_text(port, "/live")[0] == 200
    except OSError:
        return False


def fetch_text(port, path):
    """Return the status and the text of the page at a path."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    reply = connection.getresponse()
    status, text = reply.status, reply.read().decode()
    connection.close()
    return status, text


def write_trial_record(runs_folder, seed):
    config = replace(record().config, seed=seed, lr=0.1)
    trial = replace(record(), config=config, status="reached_target", examples_to_target=900.0 + seed)
    write_json(runs_folder / "going" / "trials" / f"batch-32-lr-0.1-seed-{seed}.json", trial.to_json())


def test_page_of_running_sweep_updates_and_keeps_its_sorting(browser, port, runs_folder):
    write_trial_record(runs_folder, 0)
    with browser.page(f"http://127.0.0.1:{port}/going/curve.html") as page:
        assert page.locator("#trials tbody tr").count() == 1
        page.locator("#trials th", has_text="seed").locator("button").click()
        page.evaluate("() => { window.before = true; }")
        write_trial_record(runs_folder, 1)
        page.wait_for_function("() => document.querySelectorAll('#trials tbody tr').length === 2")
        assert page.locator("#trials th", has_text="seed").get_attribute("aria-sort") == "ascending"
        assert page.evaluate("() => window.before"), "the page was reloaded"


def test_index_links_to_every_page(browser, port):
    with browser.page(f"http://127.0.0.1:{port}/") as page:
        assert page.locator("#experiments tbody tr").count() == 3
        page.locator("a", has_text="swept").click()
        page.wait_for_selector("body[data-drawn]")
        page.locator("a", has_text="how it scales").click()
        page.wait_for_selector("body[data-drawn]")
        assert page.title() == "Scaling: swept"


@pytest.mark.parametrize(
    "path", ["/none.html", "/../one/run.html", "/one/curve.html", "/one/record.json", "//etc/passwd"]
)
def test_paths_that_are_not_pages_get_404(port, path):
    status, text = fetch_text(port, path)
    assert status == 404 and "no page" in text


def test_damaged_record_is_reported_in_one_sentence(port, runs_folder):
    (runs_folder / "bad").mkdir(exist_ok=True)
    (runs_folder / "bad" / "record.json").write_text("{")
    status, text = fetch_text(port, "/bad/run.html")
    assert status == 409 and "not valid JSON" in text
    assert "bad: " in json.loads(fetch_text(port, "/live")[1])["main"]
