"""Page of sections, panels and tables, rendered as one self-contained HTML file that needs no network."""

import base64
import gzip
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.io import to_json
from plotly.offline import get_plotlyjs

from equipoise.storage.atomic import atomic_write
from equipoise.storage.object_store import RemotePath

PlainCell = str | float | int | None
INDEX_LINK_TEXT = "all experiments"
MAX_INDEX_DEPTH = 3  # folders from a page up to the index that it links to


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Plotly figure with a caption, the numbers behind it, and perhaps a deadline slider."""

    kind: ClassVar[str] = "panel"
    name: str
    """HTML id of the panel, unique within its page: letters and dashes"""
    figure: go.Figure
    caption: str
    """what the figure shows, in at most two sentences"""
    reading: str = ""
    """how to read the figure; behind a click"""
    data_table: "Table | None" = None
    slider: Mapping[str, Any] | None = None
    """deadline slider of a Pareto front: its range, and the plans to choose from"""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Table that a click on a column's name sorts."""

    kind: ClassVar[str] = "table"
    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence["TableCell"]]
    row_labels: Sequence[str] = ()
    """name of each row for the comparison of two rows; empty: rows cannot be compared"""

    def numeric_columns(self) -> list[bool]:
        """Return for each column whether it holds numbers, which are aligned at the right."""
        return [
            any(isinstance(row[index], int | float | NumberCell) for row in self.rows)
            for index in range(len(self.columns))
        ]


@dataclass(frozen=True)
class Link:
    """Table cell or navigation entry that links to another page."""

    text: str
    href: str


@dataclass(frozen=True)
class NumberCell:
    """Table cell that is sorted by a number and shows it in other words, such as with its unit and interval."""

    value: float | None
    text: str


@dataclass(frozen=True)
class TimeCell:
    """Table cell with a date and time, which is not broken into lines."""

    text: str


TableCell = PlainCell | NumberCell | TimeCell | Link


@dataclass(frozen=True, kw_only=True)
class ImageGallery:
    """Row of images with a caption below each."""

    kind: ClassVar[str] = "pictures"
    name: str
    captioned_pngs: Sequence[tuple[bytes, str]]
    """PNG data and caption of each image"""
    caption: str

    def data_urls(self) -> list[tuple[str, str]]:
        """Return each image as a data URL, with its caption."""
        return [
            (f"data:image/png;base64,{base64.b64encode(png).decode()}", caption) for png, caption in self.captioned_pngs
        ]


@dataclass(frozen=True, kw_only=True)
class FactList:
    """List of a few facts, each a name with its value."""

    kind: ClassVar[str] = "facts"
    name: str
    facts: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Note:
    """Highlighted sentence, such as a warning."""

    kind: ClassVar[str] = "note"
    name: str
    text: str


SectionPart = Panel | Table | ImageGallery | FactList | Note


@dataclass(frozen=True, kw_only=True)
class Section:
    """Section of a page: heading, paragraphs, and panels or tables."""

    title: str
    paragraphs: Sequence[str] = ()
    parts: Sequence[SectionPart] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """Content of a page, from top to bottom."""

    title: str
    lead: str
    sections: Sequence[Section]
    links: Sequence[Link] = ()
    """links to related pages"""
    live_url: str | None = None
    """URL from which an open page fetches updates; None for a page in a file"""
    comparison_entries: Mapping[str, Any] = field(default_factory=dict)
    """facts and curve of each table row that can be compared, by row label"""

    def iter_panels(self) -> Iterator[Panel]:
        """Return the panels of all sections, in order."""
        return (part for section in self.sections for part in section.parts if isinstance(part, Panel))

    @property
    def draws_figures(self) -> bool:
        """Whether the page has figures, may get some while it is open, or draws curves of what is compared."""
        curves = [entry for entry in self.comparison_entries.values() if entry.get("curve")]
        return bool(self.live_url or curves or [*self.iter_panels()])


def render_html(page: Page) -> str:
    """Render a page as a self-contained HTML file."""
    parts = {
        "drawing": load_plotly_script() if page.draws_figures else "",
        "data": gzip_base64(json.dumps(build_page_data(page))),
    }
    return escape_surrogates(load_templates().get_template("page.html").render(page=page, **parts))


def build_page_data(page: Page) -> dict[str, Any]:
    """Build the data of the page's script: figures, sliders and rows to compare."""
    data: dict[str, Any] = to_plain_json(
        {"figures": figures_to_json(page), "sliders": sliders_to_json(page), "compared": page.comparison_entries}
    )
    return data


def to_plain_json(value: Any) -> Any:
    """Replace NaN and infinities by null, and lone surrogates in strings: a browser could not parse the page's data."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {escape_surrogates(str(name)): to_plain_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_json(item) for item in value]
    return escape_surrogates(value) if isinstance(value, str) else value


def escape_surrogates(text: str) -> str:
    """Escape lone surrogates, which UTF-8 cannot encode but file names and damaged records may contain."""
    return text.encode("utf-8", "backslashreplace").decode()


def build_live_update(page: Page) -> dict[str, Any]:
    """Build the update of an open page: data of its script, and the HTML of its contents."""
    return {
        "lead": escape_surrogates(page.lead),
        **build_page_data(page),
        "main": escape_surrogates(load_templates().get_template("main.html").render(page=page)),
    }


def write_page(page: Page, path: Path, index: Path | None = None) -> Path:
    """Write a page to a file, atomically, and return its path; the page links to the index of its folder."""
    index = index or find_index(path)
    if index and index != path:
        href = quote(Path(os.path.relpath(index, path.parent)).as_posix())
        page = replace(page, links=(Link(INDEX_LINK_TEXT, href), *page.links))
    with atomic_write(path) as temporary:
        temporary.write_text(render_html(page), encoding="utf-8")
    return path


def find_index(path: Path) -> Path | None:
    """Return the index page nearest above the folder of a page on this machine; None if there is none."""
    if isinstance(path, RemotePath):
        return None
    folders = path.absolute().parent.parents
    return next((index for folder in folders[:MAX_INDEX_DEPTH] if (index := folder / "index.html").is_file()), None)


def figures_to_json(page: Page) -> dict[str, Any]:
    """Return the figures by panel name, as JSON for plotly.js."""
    options = {"validate": False, "remove_uids": True, "engine": "json"}  # orjson rejects keys that are not valid text
    return {panel.name: json.loads(to_json(panel.figure, **options)) for panel in page.iter_panels()}


def sliders_to_json(page: Page) -> dict[str, Any]:
    """Return the deadline sliders by panel name."""
    return {panel.name: dict(panel.slider) for panel in page.iter_panels() if panel.slider}


@cache
def load_plotly_script() -> str:
    """Return plotly.js, compressed; it is the same for all pages."""
    return gzip_base64(get_plotlyjs())


def gzip_base64(text: str) -> str:
    """Compress text with gzip and encode it as base64, which makes a page a third as large."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


@cache
def load_templates() -> Environment:
    """Load the templates, with escaping of everything that is inserted into a page."""
    files = PackageLoader("dashboards")
    environment = Environment(
        loader=files,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["asset"] = lambda name: Markup(files.get_source(environment, name)[0])  # noqa: S704 - our own files
    environment.tests["link"] = lambda cell: isinstance(cell, Link)
    environment.tests["time_cell"] = lambda cell: isinstance(cell, TimeCell)
    environment.tests["number_cell"] = lambda cell: isinstance(cell, NumberCell)
    environment.filters["cell"] = format_cell
    environment.filters["code"] = mark_code
    return environment


def mark_code(text: str) -> Markup:
    """Escape a text and set what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


def format_cell(value: PlainCell) -> str:
    """Format the value of a table cell; None becomes a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value
