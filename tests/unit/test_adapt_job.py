import json

import pytest

from jobs import adapt
from jobs.adapt import main, pointed


def run(*arguments):
    return main([str(one) for one in arguments])


def test_a_link_is_pointed_elsewhere_in_one_step_and_back(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    link = tmp_path / "served"
    link.symlink_to(tmp_path / "old")
    pointed(link, tmp_path / "new")
    assert link.resolve() == tmp_path / "new"
    assert run("--bundle", "none", "--link", link, "--roll-back") == 0
    assert link.resolve() == tmp_path / "old"
    assert run("--bundle", "none", "--link", link, "--roll-back") == 0  # and forth
    assert link.resolve() == tmp_path / "new"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--roll-back",), "--roll-back takes --link"),
        (("--roll-back", "--link", "nowhere"), "nothing is known of a bundle before"),
        (("--verdict", "v.json"), "is not a bundle"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("--bundle", tmp_path / "none", *arguments) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_a_folder_is_no_link(tmp_path):
    (tmp_path / "served").mkdir()
    with pytest.raises(ValueError, match="is no link"):
        pointed(tmp_path / "served", tmp_path / "new")


def test_a_verdict_is_asked_for_once(tmp_path):
    asked = adapt.Asked(bundle="b")
    with pytest.raises(ValueError, match="either --service"):
        adapt.said(asked)
    (tmp_path / "v.json").write_text(json.dumps({"label": "cat"}))
    with pytest.raises(ValueError, match="no verdict"):
        adapt.said(adapt.Asked(bundle="b", verdict=tmp_path / "v.json"))
