"""Symbolic links to bundles, which services watch."""

import json
from pathlib import Path

import pytest

from equipoise.bundle.folder import REQUIRED_FILES, write_manifest
from jobs.publishing.bundle_link import (
    point_link,
    previous_target_file,
    read_previous_target,
    require_existing_link,
    require_link,
)
from tests.support.errors import raises_code
from tests.support.manifests import build_manifest


@pytest.fixture
def write_bundle(tmp_path):
    """Return a function that writes the folder of a bundle, complete but without a model."""

    def write(name):
        folder = tmp_path / name
        folder.mkdir()
        for file in REQUIRED_FILES:
            (folder / file).touch()
        write_manifest(folder, build_manifest(name=name))
        return folder

    return write


def test_path_that_is_a_link_or_free_can_become_one(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "dangling").symlink_to("none")
    for name in ("link", "dangling", "free", "link/free"):
        require_link(tmp_path / name)
    with raises_code("path-kind", tmp_path / "folder"):
        require_link(tmp_path / "folder")
    with raises_code("path-missing", tmp_path / "none"):
        require_link(tmp_path / "none" / "link")


def test_missing_link_is_refused_with_the_command_that_makes_it(tmp_path):
    (tmp_path / "dangling").symlink_to("none")
    require_existing_link(tmp_path / "dangling")
    with raises_code("path-missing", "there is no such link", f"ln -s BUNDLE {tmp_path / 'none'}"):
        require_existing_link(tmp_path / "none")


def test_new_link_has_no_previous_target(tmp_path, capsys):
    link = tmp_path / "served"
    point_link(link, tmp_path / "first")
    assert link.readlink() == tmp_path / "first"
    assert [path.name for path in tmp_path.iterdir()] == ["served"]
    assert capsys.readouterr().out == f"{link} -> {tmp_path / 'first'}\n"
    with raises_code("rollback-impossible", link):
        read_previous_target(link)


def test_link_is_absolute_though_its_target_was_given_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    point_link(tmp_path / "served", tmp_path.relative_to(tmp_path) / "first")
    assert (tmp_path / "served").readlink() == tmp_path / "first"


def test_previous_target_is_recorded_as_an_absolute_path_without_following_links(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    (tmp_path / "served").symlink_to("./alias/../alias/bundle")
    point_link(tmp_path / "served", tmp_path / "new")
    assert json.loads((tmp_path / ".served.before").read_text()) == str(tmp_path / "alias" / "bundle")
    assert previous_target_file(tmp_path / "served") == tmp_path / ".served.before"


def test_folder_is_not_replaced_by_a_link(tmp_path):
    (tmp_path / "served").mkdir()
    with raises_code("path-kind"):
        point_link(tmp_path / "served", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["served"] and not (tmp_path / "served").is_symlink()


def test_bundle_that_a_link_pointed_to_is_verified(tmp_path, write_bundle):
    old, new, link = write_bundle("old"), write_bundle("new"), tmp_path / "served"
    point_link(link, old)
    point_link(link, new)
    assert read_previous_target(link) == old
    (old / "card.md").write_text("changed")
    with raises_code("bundle-changed", old / "card.md"):
        read_previous_target(link)


@pytest.mark.parametrize("recorded", ['""', "3", "null", "[]"])
def test_record_without_a_path_names_no_bundle(tmp_path, recorded):
    (tmp_path / ".served.before").write_text(recorded)
    with raises_code("rollback-impossible", "names no bundle"):
        read_previous_target(tmp_path / "served")


def test_path_without_a_name_cannot_be_rolled_back():
    with raises_code("rollback-impossible", "no previous bundle is recorded"):
        read_previous_target(Path("/"))
