"""Options that take a path on this machine or the URL of an object store."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import tyro

from equipoise.storage.object_store import RemotePath
from jobs.cli.paths import PathOrUrl, parse_path_or_url, require_capture_folder, validate_locations
from tests.support.errors import raises_code


@dataclass
class Options:
    out: PathOrUrl
    data: PathOrUrl | None = Path("runs/x")


def parse_options(*arguments):
    return tyro.cli(Options, args=arguments)


def test_option_takes_a_path_or_a_url():
    options = parse_options("--out", "runs/y", "--data", "memory://bucket/x")
    assert options == Options(Path("runs/y"), RemotePath("memory://bucket/x"))
    assert type(options.data) is RemotePath and type(options.out) is not RemotePath
    assert parse_options("--out", "file:///runs/y").out == Path("/runs/y")


def test_default_of_an_option_is_kept_and_shown(capsys):
    assert parse_options("--out", "y").data == Path("runs/x")
    with pytest.raises(SystemExit):
        parse_options("--help")
    shown = capsys.readouterr().out
    assert "PATH|URL" in shown and "runs/x" in shown


@pytest.mark.parametrize("text", ["", " ", "\t\n"])
def test_empty_path_is_refused(text):
    with raises_code("option-format"):
        parse_path_or_url(text)


def test_path_may_begin_with_a_blank():
    assert parse_path_or_url(" x") == Path(" x")


def test_every_location_is_validated():
    validate_locations(None, "", "runs/x", Path("runs/y"), RemotePath("s3://bucket/x"), "s3://bucket/x")
    for locations in (["s3://a:secret@b/x", "runs"], [None, "runs", Path("s3:/a:secret@b/x")]):
        with raises_code("url-secret"):
            validate_locations(*locations)


def test_capture_folder_exists_or_is_a_url(tmp_path):
    require_capture_folder(str(tmp_path))
    require_capture_folder("s3://bucket/captures")
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "none"):
        with raises_code("path-kind", path):
            require_capture_folder(str(path))
