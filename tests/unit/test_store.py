import pytest

from equipoise import store


def test_json_comes_back(tmp_path):
    store.write_json(tmp_path / "new" / "facts.json", {"a": [1, None, "é"]})
    assert store.read_json(tmp_path / "new" / "facts.json") == {"a": [1, None, "é"]}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["facts.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "facts.json"
    store.write_json(path, 1)
    with pytest.raises(ValueError, match="Out of range"):
        store.write_json(path, float("nan"))
    with pytest.raises(KeyError), store.whole(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert store.read_json(path) == 1
    assert [place.name for place in tmp_path.iterdir()] == ["facts.json"]


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "facts.json"
    path.write_text('{"a": 1')
    with pytest.raises(ValueError, match=r"facts\.json is not JSON"):
        store.read_json(path)
