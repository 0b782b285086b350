import pytest

from equipoise.storage.atomic import atomic_write, read_json, write_json
from tests.support.errors import raises_code


@pytest.fixture(params=["disk", "bucket"])
def folder(request, tmp_path, bucket):
    return tmp_path if request.param == "disk" else bucket


def list_names(folder):
    return [path.name for path in folder.iterdir()]


def test_json_is_read_back(folder):
    write_json(folder / "new" / "facts.json", {"a": [1, None, "é"]})
    assert read_json(folder / "new" / "facts.json") == {"a": [1, None, "é"]}
    assert list_names(folder / "new") == ["facts.json"]


def test_json_is_written_for_people_to_read(folder):
    write_json(folder / "facts.json", {"a": [1]})
    assert (folder / "facts.json").read_text() == '{\n "a": [\n  1\n ]\n}\n'


def test_failed_write_leaves_only_the_old_file(folder):
    path = folder / "facts.json"
    write_json(path, 1)
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, float("nan"))
    with pytest.raises(KeyError), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert read_json(path) == 1
    assert list_names(folder) == ["facts.json"]


def test_damaged_file_is_named_in_the_error(folder):
    path = folder / "facts.json"
    path.write_text('{"a": 1')
    with raises_code("file-damaged", "facts.json"):
        read_json(path)
