"""Classes on the labelling page, one for each picture, and new ones."""

from equipoise.labels.store import LabelStore
from equipoise.storage.atomic import write_json
from tests.support.labelling import write_pictures
from tests.support.labelling_person import READY


def test_class_is_given_by_one_key_and_a_guess_accepted_by_enter(serve_page, open_page, tmp_path):
    write_pictures(tmp_path / "photos", 3)
    write_json(tmp_path / "guesses.json", {"000.png": {"label": "water", "score": 0.8}})
    client = serve_page(kind="class", guesses=tmp_path / "guesses.json")
    person = open_page(client)
    assert person.page.locator("#classes [aria-pressed='true']").inner_text().startswith("water")
    person.press("Enter", "2", "1", "p", "3")
    assert person.page.locator("#empty").inner_text().startswith("All pictures are labelled.")
    stored = {labels.picture: labels.label for labels in LabelStore(tmp_path / "labels").read_all()[0]}
    assert stored == {"000.png": "water", "001.png": "crisps", "002.png": "water"}


def test_pictures_and_classes_are_added_on_the_page(serve_page, open_page, tmp_path):
    (tmp_path / "photos").mkdir()
    write_pictures(tmp_path / "elsewhere", 2)
    client = serve_page(classes=())
    person = open_page(client)
    assert "add some" in person.page.locator("#empty").inner_text()
    files = [tmp_path / "elsewhere" / f"00{number}.png" for number in range(2)]
    person.page.locator("#chosen-files").set_input_files(files)
    person.page.wait_for_selector("#stage:not([hidden])")
    person.page.locator("#classes input").fill("lemonade")
    person.page.keyboard.press("Enter")
    person.page.locator("#classes button", has_text="lemonade").wait_for()
    person.page.wait_for_selector(READY)
    person.drag((20, 20), (50, 60))
    person.press("Enter")
    (stored,) = LabelStore(tmp_path / "labels").read_all()[0]
    assert [box.label for box in stored.boxes] == ["lemonade"]
    assert len([*(tmp_path / "photos").iterdir()]) == 2
