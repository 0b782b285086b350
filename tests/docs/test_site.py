"""The site builds strictly from the documentation, and its pages load nothing from another host."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.doc_pages import list_pages
from tests.support.ray_cluster import ROOT

LOADED = re.compile(r"<(?:script|img|iframe|source)[^>]*?\ssrc=\"?([^\s\">]+)|<link[^>]*?\shref=\"?([^\s\">]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site in a copy of the project's documentation, so that other builds are left alone."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    command = [Path(sys.executable).with_name("zensical"), "build", "--strict"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder / "site"


def test_every_page_of_the_navigation_is_built(site):
    names = [page.relative_to(ROOT / "docs").with_suffix("") for page in list_pages()[1:]]
    missing = [name for name in names if not (site / (name.parent if name.name == "index" else name)).is_dir()]
    assert missing == []


def test_pages_load_nothing_from_another_host(site):
    pages = list(site.rglob("*.html"))
    loaded = {source or link for page in pages for source, link in LOADED.findall(page.read_text(encoding="utf-8"))}
    assert len(pages) > 30 and any(name.endswith(".css") for name in loaded)
    assert [name for name in loaded if re.match(r"(https?:)?//", name)] == []


def test_code_blocks_with_an_id_are_rendered_as_code(site):
    for page in site.rglob("*.html"):
        assert "```" not in page.read_text(encoding="utf-8"), page
