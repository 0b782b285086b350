"""A page holds all it needs, and nothing that was put into it becomes more than text."""

import base64
import gc
import gzip
import json
import re
import tracemalloc

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

NASTY = "</script><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"


def page(words="words", panel="panel"):
    figure = apply_theme(go.Figure(go.Scatter(x=[1, 2], y=[3, 4], name=words)))
    numbers = Table(name="numbers", columns=[words], rows=[[words], [1], [2.5], [None], [Link(words, "there.html")]])
    parts = [
        Panel(name=panel, figure=figure, caption=words, data_table=numbers),
        FactList(name="facts", facts={words: words}),
        Note(name="note", text=words),
        ImageGallery(name="pictures", captioned_pngs=[(b"\x89PNG", words)], caption=words),
    ]
    return Page(title=words, lead=words, sections=[Section(title=words, paragraphs=[words], parts=parts)])


def unpacked(text, name):
    (held,) = re.findall(f'<script id="{name}" type="application/gzip">([A-Za-z0-9+/=]*)</script>', text)
    return gzip.decompress(base64.b64decode(held)).decode()


def test_it_asks_nothing_of_any_network():
    text = render_html(page())
    assert not re.search(r'(src|href)="(?!data:|there\.html)', text)
    assert "Plotly" in unpacked(text, "drawing")
    assert len(text) < 3e6


def test_figures_arrive_as_they_were_made():
    made = page()
    data = json.loads(unpacked(render_html(made), "data"))
    assert data["figures"]["panel"]["data"][0]["x"] == [1, 2]
    assert data["figures"]["panel"]["data"][0]["y"] == [3, 4]
    assert build_live_update(made)["figures"] == data["figures"]


def test_what_is_put_into_it_is_text():
    text, plain = render_html(page(NASTY)), render_html(page())
    assert text.count("<script") == plain.count("<script") and text.count("<img") == plain.count("<img")
    assert "alert(1)</script>" not in build_live_update(page(NASTY))["main"]


def test_it_is_written_whole_or_not(tmp_path):
    assert write_page(page(), tmp_path / "page.html").read_text().endswith("</html>\n")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_page(page(), tmp_path / "file" / "page.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "page.html"]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (float("nan"), "-"), (0.01234, "0.0123"), (999.5, "1,000"), (123456.7, "123,457")]
)
def test_numbers_read_as_numbers(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (3e-6, "3 us"), (0.02, "20 ms"), (1.5, "1.5 s"), (90, "90 s"), (600, "10 min"), (2 * 86400, "2 d")],
)
def test_times_have_the_unit_in_which_they_are_read(value, text):
    assert format_seconds(value) == text


def test_nothing_is_kept_of_pages_that_were_made():
    tracemalloc.start()
    render_html(page("first"))
    before = tracemalloc.get_traced_memory()[0]
    for place in range(20):
        render_html(page(f"{place} " * 50_000))
    gc.collect()  # the last one's circles
    assert tracemalloc.get_traced_memory()[0] - before < 1e6
    tracemalloc.stop()
