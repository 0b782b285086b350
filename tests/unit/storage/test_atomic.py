import pytest

from equipoise.storage import atomic as store


@pytest.fixture(params=["disk", "bucket"])
def place(request, tmp_path, bucket):
    return tmp_path if request.param == "disk" else bucket


def names(place):
    return [one.name for one in place.iterdir()]


def test_json_comes_back(place):
    store.write_json(place / "new" / "facts.json", {"a": [1, None, "é"]})
    assert store.read_json(place / "new" / "facts.json") == {"a": [1, None, "é"]}
    assert names(place / "new") == ["facts.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(place):
    path = place / "facts.json"
    store.write_json(path, 1)
    with pytest.raises(ValueError, match="Out of range"):
        store.write_json(path, float("nan"))
    with pytest.raises(KeyError), store.whole(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert store.read_json(path) == 1
    assert names(place) == ["facts.json"]


def test_a_damaged_file_is_named(place):
    path = place / "facts.json"
    path.write_text('{"a": 1')
    with pytest.raises(ValueError, match=r"facts\.json is not JSON"):
        store.read_json(path)
