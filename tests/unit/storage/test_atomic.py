import pytest

from equipoise.storage.atomic import atomic_write, read_json, write_json


@pytest.fixture(params=["disk", "bucket"])
def place(request, tmp_path, bucket):
    return tmp_path if request.param == "disk" else bucket


def names(place):
    return [one.name for one in place.iterdir()]


def test_json_comes_back(place):
    write_json(place / "new" / "facts.json", {"a": [1, None, "é"]})
    assert read_json(place / "new" / "facts.json") == {"a": [1, None, "é"]}
    assert names(place / "new") == ["facts.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(place):
    path = place / "facts.json"
    write_json(path, 1)
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, float("nan"))
    with pytest.raises(KeyError), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert read_json(path) == 1
    assert names(place) == ["facts.json"]


def test_a_damaged_file_is_named(place):
    path = place / "facts.json"
    path.write_text('{"a": 1')
    with pytest.raises(ValueError, match=r"facts\.json: it is not valid JSON"):
        read_json(path)
