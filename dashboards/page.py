"""A page: one HTML file that holds all it needs, opens without network, and draws itself."""

import base64
import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.io import to_json
from plotly.offline import get_plotlyjs

from equipoise.storage.atomic import atomic_write

TableCell = str | float | int | None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A figure, what is to be seen on it in a sentence, and the numbers behind it."""

    kind: ClassVar[str] = "panel"
    name: str
    """of the panel within its page, in letters and dashes"""
    figure: go.Figure
    caption: str
    data_table: "Table | None" = None
    slider: Mapping[str, Any] | None = None
    """of a front: what a deadline may be, and the plans among which it chooses"""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows, which a click on a column's name sorts."""

    kind: ClassVar[str] = "table"
    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence["TableCell | Link"]]
    row_labels: Sequence[str] = ()
    """of each row, what it is called where two are compared; none: they are not"""


@dataclass(frozen=True)
class Link:
    """A cell that leads to another page."""

    text: str
    href: str


@dataclass(frozen=True, kw_only=True)
class ImageGallery:
    """A row of pictures."""

    kind: ClassVar[str] = "pictures"
    name: str
    captioned_pngs: Sequence[tuple[bytes, str]]
    """PNG and what stands below it"""
    caption: str

    def data_urls(self) -> list[tuple[str, str]]:
        """As they stand in HTML."""
        return [
            (f"data:image/png;base64,{base64.b64encode(png).decode()}", words) for png, words in self.captioned_pngs
        ]


@dataclass(frozen=True, kw_only=True)
class FactList:
    """A few names, each with what it is."""

    kind: ClassVar[str] = "facts"
    name: str
    facts: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Note:
    """A sentence that must be read."""

    kind: ClassVar[str] = "note"
    name: str
    text: str


SectionPart = Panel | Table | ImageGallery | FactList | Note


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, what there is to say, and what there is to see."""

    title: str
    paragraphs: Sequence[str] = ()
    parts: Sequence[SectionPart] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """All of it, from top to bottom."""

    title: str
    lead: str
    sections: Sequence[Section]
    links: Sequence[Link] = ()
    """to pages that belong to it"""
    live_url: str | None = None
    """where it asks for what is new; None for a file"""
    comparison_entries: Mapping[str, Any] = field(default_factory=dict)
    """by pick: what is held side by side"""

    def iter_panels(self) -> Iterator[Panel]:
        """Its panels, in order."""
        return (part for section in self.sections for part in section.parts if isinstance(part, Panel))


def render_html(page: Page) -> str:
    """The whole file."""
    parts = {"drawing": load_plotly_script(), "data": gzip_base64(json.dumps(build_page_data(page)))}
    return escape_surrogates(load_templates().get_template("page.html").render(page=page, **parts))


def build_page_data(page: Page) -> dict[str, Any]:
    """What its script draws, and answers clicks with."""
    found: dict[str, Any] = to_plain_json(
        {"figures": figures_to_json(page), "sliders": sliders_to_json(page), "compared": page.comparison_entries}
    )
    return found


def to_plain_json(value: Any) -> Any:
    """As JSON has it: neither NaN nor infinities, which would keep the whole page from being read."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {escape_surrogates(str(name)): to_plain_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_json(one) for one in value]
    return escape_surrogates(value) if isinstance(value, str) else value


def escape_surrogates(text: str) -> str:
    """Letters that no encoding has, as names of files and damaged records may hold them, in other letters."""
    return text.encode("utf-8", "backslashreplace").decode()


def build_live_update(page: Page) -> dict[str, Any]:
    """What a live page takes over: what its script draws, and the rest of its contents."""
    return {
        "lead": escape_surrogates(page.lead),
        **build_page_data(page),
        "main": escape_surrogates(load_templates().get_template("main.html").render(page=page)),
    }


def write_page(page: Page, path: Path) -> Path:
    """The page as a file."""
    with atomic_write(path) as temporary:
        temporary.write_text(render_html(page), encoding="utf-8")
    return path


def figures_to_json(page: Page) -> dict[str, Any]:
    """By name, as Plotly's script takes them."""
    options = {"validate": False, "remove_uids": True, "engine": "json"}  # orjson refuses names that are no text
    return {panel.name: json.loads(to_json(panel.figure, **options)) for panel in page.iter_panels()}


def sliders_to_json(page: Page) -> dict[str, Any]:
    """By name of the panel below which they stand."""
    return {panel.name: dict(panel.slider) for panel in page.iter_panels() if panel.slider}


@cache
def load_plotly_script() -> str:
    """Plotly's script, which is the same for all pages."""
    return gzip_base64(get_plotlyjs())


def gzip_base64(text: str) -> str:
    """Pressed, in letters: a page is a third as large as with its script in the open."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


@cache
def load_templates() -> Environment:
    """Everything that is put into a page is escaped."""
    files = PackageLoader("dashboards")
    made = Environment(
        loader=files,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals["asset"] = lambda name: Markup(files.get_source(made, name)[0])  # noqa: S704 - our own files
    made.tests["link"] = lambda cell: isinstance(cell, Link)
    made.filters["cell"] = format_cell
    return made


def format_cell(value: TableCell) -> str:
    """What stands in a table."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value
