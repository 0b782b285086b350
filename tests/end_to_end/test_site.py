"""A person's whole way on the site, in a real browser from an empty folder and without a terminal."""

import io
import itertools
import re
import signal
import threading
from urllib.request import Request, urlopen

import numpy as np
import pytest
from PIL import Image

from equipoise.captures.store import CaptureStore
from equipoise.config import TrainConfig
from equipoise.drift.adaptation.workload import CorruptionAmount, apply_corruptions
from equipoise.workloads import load_workload
from jobs.cluster.processes import wait_until
from tests.support.chromium import find_accessibility_violations, find_overflowing_elements
from tests.support.ray_cluster import ROOT
from tests.support.site_process import SiteProcess, end_site_ray

pytestmark = pytest.mark.thorough
JOB_SECONDS = 900  # until a job has ended, on a machine that does other things too
LABELS = 40
DARKER = CorruptionAmount("exposure", "darker", -2.0)
LABELLER_READY = "body[data-drawn]:not([data-busy])"


class DigitClients:
    """Clients of the service, who send digits of the held-out splits."""

    def __init__(self):
        workload = load_workload(TrainConfig(workload="digits"))
        self.classes = [*map(str, workload.classes)]
        self.images, self.labels = workload.test.inputs, workload.test.targets
        self.darker = apply_corruptions(self.images, [DARKER])
        pairs = [*zip(self.images, self.labels, strict=True), *zip(self.darker, self.labels, strict=True)]
        self.label_by_pixels = {image.numpy().tobytes(): self.classes[label] for image, label in pairs}

    def send(self, url, images, count, seed):
        """Send images to the service, and return the versions that answered."""
        chosen = np.random.default_rng(seed).integers(0, len(images), count)
        versions = set()
        for index in chosen:
            file = io.BytesIO()
            Image.fromarray(images[index][0].numpy()).save(file, "PNG")
            request = Request(f"{url}predict", file.getvalue(), {"content-type": "image/png"})  # noqa: S310 - HTTP
            with urlopen(request, timeout=60) as reply:  # noqa: S310
                versions.add(re.search(rb'"version":\s*"(\w+)"', reply.read())[1].decode())
        return versions

    def find_label(self, path):
        """Return what a captured image shows, by its pixels."""
        with Image.open(path) as image:
            return self.label_by_pixels[np.array(image)[None].tobytes()]


class Person:
    """A person at one open page of the site."""

    def __init__(self, page, client):
        self.page, self.client = page, client

    def open(self, path):
        self.page.goto(f"{self.client.url}/{path}")

    def check_page(self):
        """Everyone can read the page that is open."""
        assert find_accessibility_violations(self.page) == []
        assert find_overflowing_elements(self.page) == []

    def fill_in(self, **fields):
        """Fill in fields of a form, folded ones too; True and False are for boxes to check."""
        self.page.evaluate("() => document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        for name, value in fields.items():
            field = self.page.locator(f"#f-{name.replace('_', '-')}")
            field.set_checked(value) if isinstance(value, bool) else field.fill(str(value))

    def press(self, name):
        self.page.get_by_role("button", name=name, exact=True).first.click()

    def follow(self, name):
        self.page.get_by_role("link", name=name).first.click()

    def wait_for_job(self):
        """Wait on the page of a job until it has finished; its log has grown on the way."""
        self.page.wait_for_url("**/jobs/*")
        self.page.wait_for_selector("#log", timeout=JOB_SECONDS * 1000)
        job = self.client.wait_for_job(self.page.url.rpartition("/")[2].partition("?")[0], JOB_SECONDS)
        assert job["status"] == "finished", (job, self.client.read_log(job["id"]))
        self.page.reload()

    def wait_for(self, condition):
        """Wait until the deployment is as expected, and return it."""
        return wait_until(lambda: (found := self.client.get_deployment("digits")) and condition(found) and found, 600)


@pytest.fixture
def site(tmp_path):
    site = SiteProcess(tmp_path)
    try:
        yield site
    finally:
        site.end(signal.SIGKILL)
        end_site_ray(tmp_path)


def test_from_an_empty_folder_to_an_adapted_model(browser, site):
    with browser.page(site.client.url, bypass_csp=True) as page:  # to run axe inside
        person, clients = Person(page, site.client), DigitClients()
        sweep_and_accept_the_plan(person)
        train_and_publish(person)
        url = deploy_and_predict(person)
        see_the_drift(person, clients, url)
        label_captures(person, clients, site.folder / "runs" / "services" / "digits" / "captures")
        adapt_and_promote(person, clients, url)
    browser.errors = [error for error in browser.errors if "could not be fetched" not in error]  # of pages being left


def sweep_and_accept_the_plan(person):
    """Sweep digits, watch it live, and accept its plan from the home page."""
    person.open("new/sweep")
    person.fill_in(out="sweep", workload="digits", workers="1", batch_size="16:64", budget_seconds=60)
    person.press("start")
    person.wait_for_job()
    person.open("")
    person.follow("accept the plan of sweep")
    person.page.wait_for_url("**/plan/sweep")
    person.check_page()
    person.follow("train with this plan")


def train_and_publish(person):
    """Train with the plan, and publish what was trained."""
    person.page.wait_for_url("**/new/train?*")
    person.fill_in(out="planned")
    person.press("start")
    person.wait_for_job()
    person.follow("publish this model")
    person.page.wait_for_url("**/new/publish?*")
    person.fill_in(out="bundles/digits", native=False)
    person.press("start")
    person.wait_for_job()


def deploy_and_predict(person):
    """Deploy the bundle, and predict with a picture; return the URL of the service."""
    person.open("models")
    person.check_page()
    person.follow("bundles/digits")
    person.press("deploy")
    person.page.wait_for_url("**/models/digits")
    url = person.wait_for(lambda found: found["state"] == "running" and found["version"])["url"]
    person.open("models/digits/try")
    person.page.set_input_files("#picture", ROOT / "examples" / "digit.png")
    person.press("predict")
    person.page.wait_for_selector("#answer h2")
    person.check_page()
    return url


def see_the_drift(person, clients, url):
    """Clients send darker pictures, and the page of the deployment says so."""
    clients.send(url, clients.images, 200, 0)
    clients.send(url, clients.darker, 300, 1)
    verdict = person.wait_for(lambda found: found["verdict"] and found["verdict"]["state"] == "drift")["verdict"]
    assert verdict["cause"] == "exposure"
    seeds = itertools.count(100)
    # clients go on meanwhile: few are kept of what arrives within a second
    person.wait_for(lambda found: clients.send(url, clients.darker, 25, next(seeds)) and found["captures"] > LABELS)
    person.open("models/digits")
    person.page.wait_for_selector("svg.timeline rect.drift")
    person.check_page()
    person.open("")
    assert "answer its drift (exposure)" in person.page.inner_text("main")


def label_captures(person, clients, captures):
    """Label forty captures by their number keys."""
    person.follow("label captures")
    for _ in range(LABELS):
        person.page.wait_for_selector(f"{LABELLER_READY} #picture:not([hidden])")
        name = person.page.locator("#picture").get_attribute("alt")
        person.page.keyboard.press(str((clients.classes.index(clients.find_label(captures / name)) + 1) % 10))
        person.page.wait_for_function("name => document.getElementById('picture').alt !== name", arg=name)
    person.page.wait_for_selector(LABELLER_READY)
    labelled = [entry for entry in CaptureStore(str(captures)).list_captures(limit=None) if entry.label_given]
    assert len(labelled) == LABELS


def adapt_and_promote(person, clients, url):
    """Adapt the model, see what its gate compared, and promote it while clients go on asking."""
    before = person.client.get_deployment("digits")["version"]
    person.open("models/digits")
    person.press("adapt bundles/digits")
    person.page.wait_for_url("**/models/digits#adaptation")
    job = person.client.wait_for_job(person.client.get_adaptation("digits")["job"], JOB_SECONDS)
    assert person.client.get_adaptation("digits")["state"] == "passed", person.client.read_log(job["id"])
    assert clients.send(url, clients.darker, 5, 2) == {before}  # nothing is swapped before somebody says so
    person.open("models/digits")
    assert "drifted" in person.page.inner_text("table.gate")
    person.check_page()
    versions, is_over = set(), threading.Event()

    def go_on_asking():
        while not is_over.is_set():
            versions.update(clients.send(url, clients.darker, 5, 3))

    asking = threading.Thread(target=go_on_asking)
    asking.start()
    try:
        person.press("promote the adapted model")
        after = person.wait_for(lambda found: found["version"] not in (None, before))["version"]
        wait_until(lambda: after in versions, 60)
    finally:
        is_over.set()
        asking.join()
    assert versions <= {before, after} and clients.send(url, clients.darker, 5, 4) == {after}
