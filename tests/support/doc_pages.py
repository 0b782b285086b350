"""Pages of the documentation, in the order of the navigation, and the links between them."""

import re
from pathlib import Path

from tests.support.ray_cluster import ROOT

README, DOCS = ROOT / "README.md", ROOT / "docs"
HISTORY = (DOCS / "log", DOCS / "decisions")
"""folders of pages that say what was true on their day"""

CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)


def list_pages() -> list[Path]:
    """Return the README and the pages of the navigation, in order."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    return [README, *(DOCS / name for name in re.findall(r"(\S+\.md)$", navigation, re.MULTILINE))]


def remove_code(text: str) -> str:
    """Return the text of a page without its code, in which a link would not be one."""
    return CODE.sub("", text)


def read_links(page: Path) -> list[str]:
    """Return the targets of all links and images of a page that are not on another host."""
    targets = [match["target"] for match in LINK.finditer(remove_code(page.read_text(encoding="utf-8")))]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def read_anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and the site make them."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {make_anchor(match["text"]) for match in HEADING.finditer(text)}


def make_anchor(heading: str) -> str:
    """Return the anchor of a heading: its words in lower case, joined by hyphens."""
    words = re.sub(r"[^\w\- ]", "", heading.lower()).strip()
    return re.sub(r"[ ]+", "-", words)


def is_dead(link: str, page: Path) -> bool:
    """Return whether a link of a page leads to no file or to no heading."""
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    return not target.exists() or bool(anchor and anchor not in read_anchors(target))
