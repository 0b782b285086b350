"""Log in to the site in a real browser: by keyboard, on a phone, and as axe sees it."""

from tests.support.chromium import browser as browser
from tests.support.chromium import engine as engine
from tests.support.chromium import find_accessibility_violations, find_overflowing_elements
from tests.support.site import serve_site


def test_a_person_logs_in_by_keyboard_and_out_again(browser, tmp_path):
    with (
        serve_site(tmp_path / "results", ["view key-of-view Ada"], []) as site,
        browser.page(site.url, "phone", bypass_csp=True) as page,
    ):
        assert page.evaluate("document.activeElement.id") == "key"
        assert find_accessibility_violations(page) == [] and find_overflowing_elements(page) == []
        page.keyboard.type("key-of-view")
        page.keyboard.press("Enter")
        page.wait_for_url(site.url)
        assert find_accessibility_violations(page) == [] and find_overflowing_elements(page) == []
        page.get_by_role("button", name="log out").click()
        page.wait_for_url(f"{site.url}login")
