"""Locations that a user gives, as processes elsewhere need them."""

from pathlib import Path

import pytest

from equipoise.storage.user_paths import make_absolute, parse_path_or_url, require_local_paths
from tests.support.errors import raises_code


def test_path_is_made_absolute_and_a_url_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make_absolute("data/x") == str(tmp_path / "data" / "x")
    for location in (str(tmp_path / "x"), "s3://bucket/x", "file:///shared/x"):
        assert make_absolute(location) == location


@pytest.mark.parametrize("text", ["", " ", "\t"])
def test_empty_path_is_refused(text):
    with raises_code("option-format"):
        parse_path_or_url(text)
    with raises_code("option-format", "--out"):
        require_local_paths({"--data": "x", "--out": text})


def test_url_is_refused_where_a_path_on_this_machine_is_needed():
    require_local_paths({"--data": "runs", "--out": Path("runs/x"), "--key": None, "--log": "file:///x"})
    for given in ("s3://bucket/x", parse_path_or_url("s3://bucket/x")):
        with raises_code("path-kind", "--out takes a path on this machine, s3://... is a URL"):
            require_local_paths({"--data": "runs", "--key": None, "--out": given})
    with raises_code("url-secret"):
        require_local_paths({"--out": "s3://name:secret@bucket/x"})
