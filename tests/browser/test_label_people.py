"""Several people at the labelling page, and tabs that are killed or loaded anew: nothing that was saved is lost."""

import os
import signal

from equipoise.labels.store import LabelStore
from jobs.cluster.processes import wait_until
from tests.support.labelling import write_pictures
from tests.support.labelling_person import READY, is_close, stored_boxes

MIN_TAB_SECONDS = 0.1  # of CPU, that a tab takes to show the page


def test_two_browsers_label_one_queue_without_loss_or_double_work(serve_page, open_page, tmp_path):
    names = write_pictures(tmp_path / "photos", 10)
    client = serve_page()
    people = {name: open_page(client) for name in ("Anna", "Ben")}
    for name, person in people.items():
        person.page.fill("#author", name)
        person.page.keyboard.press("Escape")
        person.page.locator("#stage").focus()
    seen = []
    for turn in range(10):
        person = list(people.values())[turn % 2]
        seen.append(person.page.locator("#status").inner_text().split(",")[0])
        person.press("b", "Enter")
    assert sorted(seen) == names
    stored = LabelStore(tmp_path / "labels").read_all()[0]
    assert [labels.revision for labels in stored] == [1] * 10
    assert {labels.author for labels in stored} == {"Anna", "Ben"} and all(len(labels.boxes) == 1 for labels in stored)


def test_conflict_shows_the_others_labels_and_undo_brings_back_the_own_ones(client, open_page, browser, tmp_path):
    person = open_page(client)
    person.drag((20, 20), (50, 60))
    opened = client.post("/open", {"holder": "ben", "picture": "000.png"})[1]
    assert opened["is_taken"]
    box = {"label": "water", "x": 5, "y": 5, "width": 9, "height": 9}
    assert client.save("ben", opened, boxes=[box], author="Ben")[0] == 200
    person.press("Enter")
    assert "Ben" in person.page.locator("#alert").inner_text()
    assert person.boxes() == [("water", 5, 5, 9, 9)]
    person.press("z")
    assert is_close(person.boxes(), [("cola", 20, 20, 30, 40)])
    person.press("Enter")
    stored = LabelStore(tmp_path / "labels").read_labels("000.png")
    assert stored.revision == 2 and is_close(stored_boxes(tmp_path), [("cola", 20, 20, 30, 40)])
    assert [error for error in browser.errors if "409" not in error] == []
    browser.errors.clear()


def test_tab_that_is_killed_in_mid_box_loses_only_that_box(client, open_page, browser, tmp_path):
    person = open_page(client)
    person.drag((20, 20), (50, 60))
    person.press("Enter")
    person.drag((60, 20), (90, 60))
    person.page.mouse.move(*person.point(5, 5))
    person.page.mouse.down()
    person.page.mouse.move(*person.point(15, 15))
    with person.page.expect_event("crash"):
        kill_tabs(browser.engine)
    assert is_close(stored_boxes(tmp_path), [("cola", 20, 20, 30, 40)])
    wait_for_free_locks(person.page.context, client)
    again = open_page(client, context=person.page.context)
    assert "here again" in again.page.locator("#status").inner_text()
    assert is_close(again.boxes(), [("cola", 60, 20, 30, 40)])
    again.press("Enter")
    assert is_close(stored_boxes(tmp_path, "001.png"), [("cola", 60, 20, 30, 40)])


def kill_tabs(engine):
    """Kill the processes of all tabs of the browser that this test has started.

    The one that waits for the next tab is left alone: it has hardly run yet, and a new tab would begin in it.
    """
    session = engine.new_browser_cdp_session()
    for process in session.send("SystemInfo.getProcessInfo")["processInfo"]:
        if process["type"] == "renderer" and process["cpuTime"] > MIN_TAB_SECONDS:
            os.kill(process["id"], signal.SIGKILL)


def wait_for_free_locks(context, client):
    """Wait until the browser has noticed that the killed tab no longer has a picture."""
    page = context.new_page()
    page.goto(f"{client.url}assets/label.js")
    wait_until(lambda: not page.evaluate("async () => (await navigator.locks.query()).held.length"), 20)
    page.close()


def test_reload_keeps_the_picture_and_what_was_drawn(client, open_page):
    person = open_page(client)
    person.press("s")
    person.drag((20, 20), (50, 60))
    person.page.reload()
    person.page.wait_for_selector(READY)
    shown = person.page.locator("#progress").inner_text()
    assert shown.startswith("0 of 4") and "others" not in shown
    person.press("s")
    assert is_close(person.boxes(), [("cola", 20, 20, 30, 40)])


def test_copy_of_a_tab_takes_another_picture(client, open_page):
    person = open_page(client)
    with person.page.context.expect_page() as opened:
        person.page.evaluate("() => void window.open(location.href)")  # the copy has the id of the first one's session
    opened.value.wait_for_selector(READY)
    assert opened.value.locator("#progress").inner_text() == "0 of 4 labelled, 1 with others"
    assert person.page.locator("#status").inner_text().startswith("000.png")
    assert opened.value.locator("#status").inner_text().startswith("001.png")
