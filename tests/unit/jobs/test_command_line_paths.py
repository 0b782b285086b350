"""Options that take a path on this machine or the URL of an object store."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import tyro

from equipoise.storage.object_store import RemotePath
from equipoise.storage.user_paths import parse_path_or_url, require_local_paths
from jobs.cli.paths import OptionalPathOrUrl, PathOrUrl, require_capture_folder, validate_locations
from tests.support.errors import raises_code


@dataclass
class Options:
    out: PathOrUrl
    data: OptionalPathOrUrl = Path("runs/x")


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


def test_optional_path_may_be_left_out_and_none_is_a_name():
    @dataclass
    class Optional:
        out: OptionalPathOrUrl = None

    assert tyro.cli(Optional, args=[]).out is None
    assert tyro.cli(Optional, args=["--out", "None"]).out == Path("None")


@pytest.mark.parametrize("text", ["", " ", "\t\n"])
def test_empty_path_is_refused(text):
    with raises_code("option-format"):
        parse_path_or_url(text)


def test_path_may_begin_with_a_blank():
    assert parse_path_or_url(" x") == Path(" x")


def test_every_location_is_validated():
    validate_locations(None, "runs/x", Path("runs/y"), RemotePath("s3://bucket/x"), "s3://bucket/x")
    for locations in (["s3://a:secret@b/x", "runs"], [None, "runs", Path("s3:/a:secret@b/x")]):
        with raises_code("url-secret"):
            validate_locations(*locations)


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("", "option-format"),
        (" ", "option-format"),
        ("memory://bucket/x", "store-unsupported"),
        (RemotePath("memory://bucket/x"), "store-unsupported"),
        (RemotePath("http://host/x"), "store-unsupported"),
    ],
)
def test_location_that_is_empty_or_does_not_last_is_refused(location, code):
    with raises_code(code):
        validate_locations("runs/x", location)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("", "option-format"),
        ("s3://bucket/x", "path-kind"),
        (RemotePath("s3://bucket/x?signature"), "path-kind"),
        (RemotePath("http://host/x"), "path-kind"),
        (RemotePath("s3://name:signature@bucket/x"), "url-secret"),
        (Path("s3:/name:signature@bucket/x"), "url-secret"),
        (Path("two\nlines"), "url-format"),
    ],
)
def test_option_for_a_path_on_this_machine_takes_no_url(given, code):
    require_local_paths({"--out": Path("runs/x"), "--data": "runs", "--key": None})
    with raises_code(code) as raised:
        require_local_paths({"--out": given})
    assert "signature" not in str(raised.value)


def test_capture_folder_exists_or_is_a_url(tmp_path):
    require_capture_folder(str(tmp_path))
    require_capture_folder("s3://bucket/captures")
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "none"):
        with raises_code("path-kind", path):
            require_capture_folder(str(path))
