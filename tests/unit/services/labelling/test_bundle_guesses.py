"""First guesses of a published model that runs in the labelling server."""

import pytest

from jobs.cluster.processes import wait_until
from services.labelling.bundle_guesses import BundleGuesser
from tests.support.detector_service import encode_picture
from tests.support.errors import raises_code
from tests.support.labelling import serve_labelling
from tests.support.square_detector import draw_squares


@pytest.fixture
def photos(tmp_path):
    """Folder of three pictures of squares."""
    (tmp_path / "photos").mkdir()
    for index, picture in enumerate(draw_squares(3, 77)[0]):
        (tmp_path / "photos" / f"{index}.png").write_bytes(encode_picture(picture.permute(1, 2, 0).numpy()))
    return tmp_path / "photos"


def test_boxes_of_the_model_are_the_first_guess_and_its_classes_those_of_the_page(squares_bundle, photos, tmp_path):
    with serve_labelling(tmp_path, bundle=str(squares_bundle.folder), classes=()) as page:
        assert page.get("/queue")[1]["classes"] == [*squares_bundle.classes]
        names = sorted(path.name for path in photos.iterdir())
        opened = [page.post("/open", {"holder": "anna", "picture": name})[1] for name in names]
    found = squares_bundle.find_boxes([photos / name for name in names])
    assert sum(map(len, found)) >= 3
    for document, boxes in zip(opened, found, strict=True):
        expected = [{"label": b.label, "x": b.x, "y": b.y, "width": b.width, "height": b.height} for b in boxes]
        assert [
            {name: value for name, value in box.items() if name != "score"} for box in document["guess"]["boxes"]
        ] == expected
        assert [box["score"] for box in document["guess"]["boxes"]] == [box.score for box in boxes]


def test_picture_of_which_the_model_is_least_certain_comes_first(squares_bundle, photos, tmp_path):
    guesser = BundleGuesser(str(squares_bundle.folder), "boxes")
    order = sorted((path.name for path in photos.iterdir()), key=lambda name: guesser(photos / name).confidence)
    with serve_labelling(tmp_path, bundle=str(squares_bundle.folder)) as page:
        wait_until(lambda: page.get("/queue")[1]["pictures"] == order, 30)


def test_model_of_another_kind_is_refused(squares_bundle):
    with raises_code("bundle-kind", "one class per image"):
        BundleGuesser(str(squares_bundle.folder), "class")


def test_one_picture_in_place_of_a_list_is_refused(squares_bundle, photos):
    with raises_code("images-invalid", "list"):
        squares_bundle.find_boxes((photos / "0.png").read_bytes())
