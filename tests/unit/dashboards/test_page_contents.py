"""Cells, data and files of a page are what its parts hold, in a form that every browser can read."""

import gzip
import json
import math
from base64 import b64decode
from pathlib import Path

import plotly.graph_objects as go
import pytest
from jinja2 import UndefinedError

from dashboards import page as page_module
from dashboards.page import (
    FactList,
    ImageGallery,
    Link,
    Note,
    Page,
    Panel,
    Section,
    Table,
    build_live_update,
    build_page_data,
    escape_surrogates,
    format_cell,
    gzip_base64,
    load_templates,
    render_html,
    to_plain_json,
    write_page,
)

TEMPLATES = Path(page_module.__file__).parent / "templates"
SLIDER = {"label": "deadline", "low": 1.0, "high": math.inf}


def build_page(*parts, **facts):
    """Build a page of one section."""
    return Page(title="title", lead="lead", sections=[Section(title="section", parts=parts)], **facts)


def build_panel(name="panel", slider=None, height=None):
    figure = go.Figure(go.Scatter(x=[1], y=[math.nan])).update_layout(height=height)
    return Panel(name=name, figure=figure, caption="a caption", slider=slider)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("text", "text"),
        (1234567, "1,234,567"),
        (9999.4, "9999"),
        (10000.0, "10,000"),
        (-12345.6, "-12,346"),
        (0.123456, "0.1235"),
    ],
)
def test_cells_are_formatted_for_reading(value, text):
    assert format_cell(value) == text


def test_numbers_that_json_does_not_have_become_null():
    value = {"a": [1.5, math.nan, -math.inf], "b": (True, "text", None), "c": {"d": math.inf}, 3: 4}
    assert to_plain_json(value) == {"a": [1.5, None, None], "b": [True, "text", None], "c": {"d": None}, "3": 4}


def test_lone_surrogates_are_escaped_in_names_and_values():
    assert escape_surrogates("caf\u00e9 \udcff") == "caf\u00e9 \\udcff"
    assert to_plain_json({"\udcff": ["\udcff"]}) == {"\\udcff": ["\\udcff"]}


def test_data_of_the_script_are_figures_sliders_and_rows_to_compare():
    page = build_page(
        build_panel("first", SLIDER),
        build_panel("second"),
        Note(name="n", text=""),
        comparison_entries={"row": {"x": math.nan}},
    )
    data = build_page_data(page)
    assert data["figures"].keys() == {"first", "second"}
    assert data["figures"]["first"]["data"][0]["x"] == [1] and data["figures"]["first"]["data"][0]["y"] == [None]
    assert "uid" not in data["figures"]["first"]["data"][0]
    assert data["sliders"] == {"first": {"label": "deadline", "low": 1.0, "high": None}}
    assert data["compared"] == {"row": {"x": None}}
    json.dumps(data, allow_nan=False)


def test_panels_are_those_of_all_sections_in_order():
    sections = [
        Section(title="a", parts=[Note(name="n", text=""), build_panel("1")]),
        Section(title="b", parts=[build_panel("2"), build_panel("3")]),
    ]
    page = Page(title="", lead="", sections=sections)
    assert [panel.name for panel in page.iter_panels()] == ["1", "2", "3"]


def test_update_of_an_open_page_has_its_lead_data_and_contents():
    page = build_page(FactList(name="facts", facts={"rate": "3 \udcff"}), build_panel())
    update = build_live_update(page)
    assert update.keys() == {"lead", "figures", "sliders", "compared", "main"}
    assert update["lead"] == "lead"
    assert "<dt>rate</dt><dd>3 \\udcff</dd>" in update["main"]
    assert "<html" not in update["main"]


def test_only_an_open_page_of_a_service_fetches_updates():
    assert 'data-live="/status/data"' in render_html(build_page(live_url="/status/data"))
    assert "<body>" in render_html(build_page())


def test_page_links_to_related_pages():
    html = render_html(build_page(links=[Link("the trade-off", "curve.html")]))
    assert '<a href="curve.html">the trade-off</a>' in html


def test_rows_with_labels_can_be_chosen_for_comparison():
    table = Table(name="runs", columns=["run", "seconds"], rows=[["a", 12345.6], [Link("b", "b.html"), None]])
    plain = render_html(build_page(table))
    assert '<td class="number" data-value="12345.6">12,346</td>' in plain  # sorted by the exact value
    assert '<a href="b.html">b</a>' in plain and '<td class="number">-</td>' in plain
    assert 'class="pick"' not in plain
    labelled = Table(name="runs", columns=["run"], rows=[["a"], ["b"]], row_labels=["a", "b"])
    assert render_html(build_page(labelled)).count('class="pick"') == 2


def test_panel_keeps_its_height_and_caption_before_it_is_drawn():
    html = render_html(build_page(build_panel(height=420, slider=SLIDER)))
    assert "min-height: 420px" in html and "<figcaption>a caption</figcaption>" in html
    assert 'id="panel-deadline"' in html
    assert 'id="panel-deadline"' not in render_html(build_page(build_panel()))


def test_numbers_behind_a_panel_are_folded_below_it():
    table = Table(name="numbers", columns=["n"], rows=[[7]])
    panel = Panel(name="panel", figure=go.Figure(), caption="", data_table=table)
    html = render_html(build_page(panel))
    assert '<details class="numbers">' in html and 'data-value="7"' in html
    assert "<details" not in render_html(build_page(build_panel()))


def test_commands_in_texts_are_set_as_code():
    html = render_html(build_page(Note(name="n", text="run `equipoise train --out <folder>` & wait")))
    assert "run <code>equipoise train --out &lt;folder&gt;</code> &amp; wait" in html


def test_images_are_part_of_the_page():
    gallery = ImageGallery(name="images", captioned_pngs=[(b"one", "first"), (b"two", "second")], caption="all")
    assert gallery.data_urls() == [("data:image/png;base64,b25l", "first"), ("data:image/png;base64,dHdv", "second")]


def test_pages_of_equal_contents_are_equal_files(tmp_path):
    pages = [write_page(build_page(build_panel()), tmp_path / f"{name}.html").read_bytes() for name in "ab"]
    assert pages[0] == pages[1]


def test_compressed_text_is_the_text():
    text = "caf\u00e9 " * 1000
    packed = gzip_base64(text)
    assert gzip.decompress(b64decode(packed)).decode() == text
    assert len(packed) < len(text) / 10


def test_missing_name_in_a_template_is_an_error():
    environment = load_templates()
    with pytest.raises(UndefinedError, match="undefined"):
        environment.from_string("{{ missing }}").render()
    assert environment.from_string("{{ text }}\n").render(text="<b>") == "&lt;b&gt;\n"


def test_statements_of_a_template_leave_no_blank_lines():
    template = load_templates().from_string("<ul>\n  {% if yes %}\n<li>\n  {% endif %}\n</ul>\n")
    assert template.render(yes=True) == "<ul>\n<li>\n</ul>\n"


def test_style_and_script_are_part_of_the_page():
    html = render_html(build_page())
    style, script = ((TEMPLATES / name).read_text() for name in ("page.css", "page.js"))
    assert style in html and script in html
