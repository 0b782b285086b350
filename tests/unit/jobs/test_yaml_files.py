"""YAML files of unknown content: their documents, or one sentence on why they cannot be read."""

import pytest

from jobs.cluster.yaml_files import load_yaml_documents
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    ("text", "documents"),
    [("", []), ("a: 1", [{"a": 1}]), ("a: 1\n---\n- é\n---\n", [{"a": 1}, ["é"], None])],
)
def test_all_documents_are_read(tmp_path, text, documents):
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    assert load_yaml_documents(tmp_path / "x.yaml") == documents


def test_missing_file_and_folder_are_refused(tmp_path):
    with raises_code("cluster-file", "No such file or directory"):
        load_yaml_documents(tmp_path / "none")
    with raises_code("cluster-file", "cannot be read as YAML"):
        load_yaml_documents(tmp_path)


def test_object_of_python_is_refused(tmp_path):
    (tmp_path / "x.yaml").write_text("!!python/object/apply:os.getcwd []")
    with raises_code("cluster-file", "ConstructorError"):
        load_yaml_documents(tmp_path / "x.yaml")


def test_reason_is_one_line_of_at_most_300_letters(tmp_path):
    (tmp_path / "x.yaml").write_text(f"a: !{'x' * 500} y")
    with raises_code("cluster-file", "x" * 100) as raised:
        load_yaml_documents(tmp_path / "x.yaml")
    text = str(raised.value)
    assert "\n" not in text and len(text.partition("(")[2].rpartition(")")[0]) == 300
