"""Pages of runs as they go, served: what is new on disk is on the page without a reload."""

import json
from dataclasses import replace
from http.client import HTTPConnection

import pytest

from equipoise.storage.atomic import write_json
from jobs.cluster.processes import find_free_ports, wait_until
from tests.serving.conftest import SERVE
from tests.support.sweep_folders import write_sweep_folder, write_system_csv
from tests.unit.dashboards.test_training_run import record


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("served") / "runs"
    write_json(root / "one" / "record.json", record().to_json())
    write_sweep_folder(root / "swept")
    (root / "going").mkdir()
    (root / "going" / "trial.json").write_text(json.dumps({"workload": "digits"}))
    write_system_csv(root / "going" / "system.csv")
    return root


@pytest.fixture(scope="module")
def port(stage, cluster, root, tmp_path_factory):
    stage.clear()
    (port,) = find_free_ports(1)
    log = tmp_path_factory.mktemp("pages") / "log"
    process = cluster.start(SERVE, "run", "services.pages:build", f"runs={root}", f"port={port}", log=log)
    try:
        wait_until(lambda: process.poll() is None and answered(port), 60)
        assert f"will answer at http://127.0.0.1:{port}/" in log.read_text()
        yield port
    finally:
        cluster.shut_down_serve()
        process.terminate()
        process.wait(timeout=60)


def answered(port):
    try:
        return ask(port, "/live")[0] == 200
    except OSError:
        return False


def ask(port, path):
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    reply = connection.getresponse()
    found = reply.status, reply.read().decode()
    connection.close()
    return found


def tried(root, seed):
    one = replace(record().config, seed=seed, lr=0.1)
    held = replace(record(), config=one, status="reached_target", examples_to_target=900.0 + seed)
    write_json(root / "going" / "trials" / f"batch-32-lr-0.1-seed-{seed}.json", held.to_json())


def test_a_sweep_is_seen_as_it_goes_and_what_was_chosen_stays(browser, port, root):
    tried(root, 0)
    with browser.page(f"http://127.0.0.1:{port}/going/curve.html") as page:
        assert page.locator("#trials tbody tr").count() == 1
        page.locator("#trials th", has_text="seed").locator("button").click()
        page.evaluate("() => { window.before = true; }")
        tried(root, 1)
        page.wait_for_function("() => document.querySelectorAll('#trials tbody tr').length === 2")
        assert page.locator("#trials th", has_text="seed").get_attribute("aria-sort") == "ascending"
        assert page.evaluate("() => window.before"), "the page was loaded anew"


def test_the_index_leads_to_every_page(browser, port):
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
def test_nothing_but_pages_is_served(port, path):
    status, said = ask(port, path)
    assert status == 404 and "no page" in said


def test_what_is_damaged_is_a_sentence(port, root):
    (root / "bad").mkdir(exist_ok=True)
    (root / "bad" / "record.json").write_text("{")
    status, said = ask(port, "/bad/run.html")
    assert status == 409 and "not valid JSON" in said
    assert "bad: " in json.loads(ask(port, "/live")[1])["main"]
