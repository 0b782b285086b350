"""A page contains everything it needs, and its contents cannot become more than text."""

import base64
import gc
import gzip
import json
import re
import tracemalloc
from dataclasses import replace

import plotly.graph_objects as go
import pytest

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
    render_html,
    write_page,
)
from dashboards.theme import apply_theme, format_seconds
from equipoise.formatting import format_number

HOSTILE_TEXT = "</script><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"


def build_page(text="words", panel="panel"):
    figure = apply_theme(go.Figure(go.Scatter(x=[1, 2], y=[3, 4], name=text)))
    table = Table(name="numbers", columns=[text], rows=[[text], [1], [2.5], [None], [Link(text, "there.html")]])
    parts = [
        Panel(name=panel, figure=figure, caption=text, data_table=table),
        FactList(name="facts", facts={text: text}),
        Note(name="note", text=text),
        ImageGallery(name="pictures", captioned_pngs=[(b"\x89PNG", text)], caption=text),
    ]
    return Page(title=text, lead=text, sections=[Section(title=text, paragraphs=[text], parts=parts)])


def unpack_script(html, name):
    (content,) = re.findall(f'<script id="{name}" type="application/gzip">([A-Za-z0-9+/=]*)</script>', html)
    return gzip.decompress(base64.b64decode(content)).decode()


def test_page_loads_nothing_from_the_network():
    html = render_html(build_page())
    assert not re.search(r'(src|href)="(?!data:|there\.html)', html)
    assert "Plotly" in unpack_script(html, "drawing")
    assert len(html) < 3e6


def test_page_without_figures_is_small_and_others_bring_what_draws_them():
    page = build_page()
    (section,) = page.sections
    plain = replace(page, sections=[replace(section, parts=[part for part in section.parts if part.kind != "panel"])])
    assert len(render_html(plain)) < 150_000 and "drawing" not in re.findall(r'id="(\w+)"', render_html(plain))
    curve = {"curve": {"x": [1], "y": [2], "across": "", "up": ""}}
    for drawn in (page, replace(plain, live_url="/live"), replace(plain, comparison_entries={"a": curve, "b": {}})):
        assert "Plotly" in unpack_script(render_html(drawn), "drawing")


def test_figures_are_embedded_unchanged():
    page = build_page()
    data = json.loads(unpack_script(render_html(page), "data"))
    assert data["figures"]["panel"]["data"][0]["x"] == [1, 2]
    assert data["figures"]["panel"]["data"][0]["y"] == [3, 4]
    assert build_live_update(page)["figures"] == data["figures"]


def test_content_is_escaped_as_text():
    hostile, plain = render_html(build_page(HOSTILE_TEXT)), render_html(build_page())
    assert hostile.count("<script") == plain.count("<script") and hostile.count("<img") == plain.count("<img")
    assert "alert(1)</script>" not in build_live_update(build_page(HOSTILE_TEXT))["main"]


def test_page_is_written_completely_or_not_at_all(tmp_path):
    assert write_page(build_page(), tmp_path / "page.html").read_text().endswith("</html>\n")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_page(build_page(), tmp_path / "file" / "page.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "page.html"]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (float("nan"), "-"), (0.01234, "0.0123"), (999.5, "1,000"), (123456.7, "123,457")]
)
def test_numbers_are_formatted_for_reading(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (3e-6, "3 us"), (0.02, "20 ms"), (1.5, "1.5 s"), (90, "90 s"), (600, "10 min"), (2 * 86400, "2 d")],
)
def test_times_are_formatted_in_a_readable_unit(value, text):
    assert format_seconds(value) == text


def test_rendered_pages_are_not_kept_in_memory():
    tracemalloc.start()
    render_html(build_page("first"))
    before = tracemalloc.get_traced_memory()[0]
    for index in range(20):
        render_html(build_page(f"{index} " * 50_000))
    gc.collect()  # reference cycles of the last page
    assert tracemalloc.get_traced_memory()[0] - before < 1e6
    tracemalloc.stop()
