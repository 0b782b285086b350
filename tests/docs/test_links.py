"""Links of the README and the documentation lead somewhere, and every code block says whether a test runs it."""

from pathlib import Path

import pytest

from tests.support.doc_fences import COMMAND_LANGUAGES, list_fences, read_fences
from tests.support.doc_pages import DOCS, HISTORY, README, is_dead, list_pages, make_anchor, read_links
from tests.support.ray_cluster import ROOT

ALL_PAGES = [README, *sorted(DOCS.rglob("*.md"))]
RUN_ATTRIBUTES = {"id", "in", "skip", "service", "status", "file"}


def name_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_page)
def test_links_lead_somewhere(page):
    assert [link for link in read_links(page) if is_dead(link, page)] == []


def test_links_of_the_documentation_stay_in_its_folder():
    """A link out of docs/ works on a code host and is dead on the site."""
    leaving = [
        f"{name_page(page)}: {link}"
        for page in ALL_PAGES[1:]
        for link in read_links(page)
        if not (page.parent / link.partition("#")[0]).resolve().is_relative_to(DOCS)
    ]
    assert leaving == []


@pytest.mark.parametrize("link", ["missing.md", "concepts.md#missing", "#missing"])
def test_dead_link_is_found(link):
    assert is_dead(link, DOCS / "index.md")


def test_anchor_is_that_of_the_site():
    assert make_anchor("Confirmed or refuted?") == "confirmed-or-refuted"
    assert make_anchor("What is in `plan.json`") == "what-is-in-planjson"


def test_every_page_is_in_the_navigation_or_in_an_index():
    indexed = {link for name in HISTORY for link in read_links(name / "index.md")}
    pages = {page for page in DOCS.rglob("*.md") if page.name not in indexed}
    assert pages - set(list_pages()) == set()


@pytest.mark.parametrize("page", [page for page in ALL_PAGES if page.parent not in HISTORY], ids=name_page)
def test_code_blocks_run_in_a_test_or_say_why_not(page):
    for fence in list_fences(page):
        attributes = fence.attributes
        if fence.language in COMMAND_LANGUAGES:
            assert bool(attributes.get("id")) != bool(attributes.get("skip")), f"{fence.name}: give an id or skip"
            assert set(attributes) <= RUN_ATTRIBUTES, fence.name
            assert (ROOT / attributes.get("in", "tests")).exists(), fence.name
        else:
            assert set(attributes) <= {"output"}, fence.name
            assert attributes.get("output") in {None, *read_fences(page)}, fence.name
