"""The labelling page of a prediction service: a request that it kept is labelled with the key of the service."""

import pytest

from equipoise.bundle.bundle import load_bundle
from equipoise.labels.store import LabelStore
from tests.support.chromium import find_accessibility_violations, find_overflowing_elements
from tests.support.detector_service import keep_pictures, start_detector_service
from tests.support.labelling import LabellingClient
from tests.support.labelling_person import is_close
from tests.support.square_detector import draw_squares, publish_squares

pytestmark = pytest.mark.slow
KEY = "a-key-of-thirty-two-characters-.."
CREDENTIALS = {"username": "anna", "password": KEY}  # any name


@pytest.mark.parametrize("width", ["desk", "phone"])
def test_answers_of_the_service_are_accepted_with_one_key(open_page, tmp_path, width):
    bundle = load_bundle(publish_squares(tmp_path))
    keep_pictures(bundle, tmp_path, draw_squares(2, 98)[0], ("usual", "drift"))
    with start_detector_service(bundle.folder, tmp_path, tmp_path / "labels", (KEY,)) as service:
        client = LabellingClient(service.port)
        client.url += "label"
        person = open_page(client, width, http_credentials=CREDENTIALS, bypass_csp=True)
        assert person.page.url.endswith("/label/")
        assert person.page.locator("#progress").inner_text() == "0 of 2 labelled"
        assert person.page.locator("#files, #camera, dialog").count() == 0
        assert find_overflowing_elements(person.page) == []
        assert find_accessibility_violations(person.page) == []
        shown = person.boxes()
        person.press("Enter")
        assert person.page.locator("#progress").inner_text() == "1 of 2 labelled"
    (stored,) = LabelStore(tmp_path / "labels").read_all()[0]
    assert shown and is_close([(box.label, box.x, box.y, box.width, box.height) for box in stored.boxes], shown)
    assert stored.picture.startswith("drift-")
