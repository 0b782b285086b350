"""Pages of models and labels in a real browser, on a desk and a phone: by keyboard, as axe sees them, their weight."""

import pytest

from equipoise.bundle.folder import MANIFEST_FILE, MODEL_CARD_FILE
from equipoise.captures.store import CaptureStore
from equipoise.storage.atomic import write_json
from services.site.models.deployments.deployment import Deployment
from services.site.models.deployments.deployment_store import DeploymentStore
from tests.support.captures import CLASSES, build_request
from tests.support.chromium import find_accessibility_violations, find_overflowing_elements
from tests.support.manifests import build_manifest
from tests.support.site import serve_site

PATHS = (
    "models",
    "models/bundles/bundles/insects",
    "models/insects",
    "models/insects/try",
    "labels",
    "labels/insects/",
)
MAX_PAGE_BYTES = 150_000
LABELLER_READY = "body[data-drawn]:not([data-busy])"


def build_results(folder):
    """Build a results folder with two bundles of a model, its deployment, and three captures."""
    for name in ("insects", "insects-2"):
        bundle = folder / "bundles" / name
        bundle.mkdir(parents=True)
        write_json(bundle / MANIFEST_FILE, build_manifest(name="insects", classes=CLASSES).to_json())
        (bundle / MODEL_CARD_FILE).write_text("# insects\n\nA model.\n")
    deployment = Deployment(name="insects", model="insects", bundle="bundles/insects", port=18001)
    deployment = deployment.record_change("deploy", "bundles/insects", 1.0)
    DeploymentStore(folder / ".site").add_deployment(lambda _: deployment)
    store = CaptureStore(str(folder / "services" / "insects" / "captures"), seed=0)
    for number in range(3):
        assert store.offer(build_request(side=16, seed=number))
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with serve_site(build_results(tmp_path_factory.mktemp("models-pages") / "results")) as site:
        yield site


@pytest.mark.parametrize("width", ["desk", "phone"])
@pytest.mark.parametrize("path", PATHS)
def test_pages_can_be_read_by_everyone(browser, site, path, width):
    with browser.page(f"{site.url}{path}", width, bypass_csp=True) as page:  # to run axe inside
        assert find_accessibility_violations(page) == []
        assert find_overflowing_elements(page) == []


def test_a_page_is_light(browser, site):
    with browser.page(f"{site.url}models/insects") as page:
        sizes = page.evaluate(
            "() => performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
            ".map((entry) => entry.transferSize)"
        )
        assert 0 < sum(sizes) < MAX_PAGE_BYTES


def test_a_refused_deployment_is_explained_in_one_sentence(browser, site):
    with browser.page(f"{site.url}models/bundles/bundles/insects") as page:
        page.locator("#name").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/models/deploy")
        assert "cannot deploy" in page.get_by_role("alert").inner_text()
    browser.errors = [error for error in browser.errors if "status of 4" not in error]  # of the refusal itself


def test_captures_are_labelled_by_keyboard(browser, tmp_path):
    results = build_results(tmp_path / "results")  # pages that were opened before may hold pictures of the others
    with serve_site(results) as site, browser.page(f"{site.url}labels/insects/", "phone") as page:
        for key in ("2", "3", "Enter"):
            page.wait_for_selector(f"{LABELLER_READY} #picture:not([hidden])")
            page.keyboard.press(key)
            page.wait_for_selector(LABELLER_READY)
        page.wait_for_selector("#empty:not([hidden])")
        assert "All pictures are labelled" in page.locator("#empty").inner_text()
        page.get_by_role("link", name="back").click()
        page.wait_for_url("**/labels")
    captures = CaptureStore(str(results / "services" / "insects" / "captures")).list_captures()
    assert sorted(str(capture.label_given) for capture in captures) == ["ant", "bee", "cat"]
