"""The panel of known conditions shows how large a share of the images each of them has."""

from itertools import pairwise

import numpy as np
import pytest

from dashboards.panels.condition_shares import (
    MAX_CONDITION_AREAS,
    MAX_STRETCHES,
    OTHER_CONDITIONS,
    build_condition_panel,
    condition_shares_figure,
)
from dashboards.panels.drift import build_drift_sections, verdict_facts
from dashboards.panels.drift_words import EXAMPLE_WORDS
from dashboards.theme import NEUTRAL_COLOR, SERIES_COLORS
from equipoise.drift.diagnosis.verdict import ChartHistory, DatasetVerdict, StreamVerdict

SHARES = {"as published": 0.3, "warmer, 4,400 K": 0.7}


def build_history(image_numbers, **conditions):
    return ChartHistory(
        image_numbers=image_numbers,
        threshold=[5.0] * len(image_numbers),
        charts={"energy": [1.0] * len(image_numbers)},
        conditions=conditions,
    )


def draw_figure(history):
    return condition_shares_figure(history, EXAMPLE_WORDS["image"])


def draw_shares(history):
    """Return the name and the shares of each area of a figure, without the repeated last one."""
    return {trace.name: trace.y[:-1].tolist() for trace in draw_figure(history).data}


def test_areas_are_the_shares_of_the_steps():
    figure = draw_figure(build_history([20, 40, 80], plain=[1.0, 0.75, 0.25], warm=[0.0, 0.25, 0.75]))
    plain, warm = figure.data
    assert (plain.name, warm.name) == ("plain", "warm")
    assert list(plain.x) == list(warm.x) == [20, 40, 80]  # where steps begin and end: that of the first is not known
    assert list(plain.y) == [0.75, 0.25, 0.25] and list(warm.y) == [0.25, 0.75, 0.75]
    assert plain.stackgroup == warm.stackgroup and plain.line.shape == "hv"
    assert (plain.line.color, warm.line.color) == SERIES_COLORS[:2]
    assert list(figure.layout.yaxis.range) == [0, 1] and figure.layout.yaxis.tickformat == ".0%"
    assert list(figure.layout.xaxis.range) == [20, 80]
    assert figure.layout.legend.traceorder == "normal"  # that of stacked areas is reversed unless told otherwise


def test_long_histories_are_averaged_over_the_images_of_neighbouring_steps():
    rng = np.random.default_rng(1)
    image_counts, plain = rng.integers(16, 400, 512), rng.random(512).round(3)
    history = build_history(np.cumsum(image_counts).tolist(), plain=plain.tolist(), warm=(1 - plain).tolist())
    first, second = draw_figure(history).data
    assert len(first.x) == MAX_STRETCHES + 1
    assert (first.x[0], first.x[-1]) == (history.image_numbers[0], history.image_numbers[-1])
    ends = np.searchsorted(history.image_numbers, first.x)
    expected = [
        np.average(plain[start + 1 : end + 1], weights=image_counts[start + 1 : end + 1])
        for start, end in pairwise(ends)
    ]
    assert first.y[:-1] == pytest.approx(expected)
    assert first.y + second.y == pytest.approx(np.ones(len(first.y)))


def test_rarest_of_too_many_conditions_share_one_grey_area():
    conditions = {f"light {index}": [0.0, (index + 1) / 36] for index in range(MAX_CONDITION_AREAS + 2)}
    figure = draw_figure(build_history([10, 20], **conditions))
    names = [trace.name for trace in figure.data]
    assert names == [*[f"light {index}" for index in range(2, MAX_CONDITION_AREAS + 2)], OTHER_CONDITIONS]
    colors = [trace.line.color for trace in figure.data]
    assert colors == [*SERIES_COLORS, NEUTRAL_COLOR]
    assert figure.data[-1].y[0] == pytest.approx(3 / 36)  # of lights 0 and 1
    assert sum(trace.y[0] for trace in figure.data) == pytest.approx(1)


def test_page_of_a_stream_shows_the_conditions_after_the_charts():
    verdict = StreamVerdict(state="ok", conditions=SHARES, condition="warmer, 4,400 K")
    history = build_history([20, 40], **{name: [share, share] for name, share in SHARES.items()})
    sections = build_drift_sections(verdict, history, prefix="shop-")
    assert [section.title for section in sections] == ["Verdict", "Charts", "Conditions"]
    assert verdict_facts(verdict)["condition"] == "warmer, 4,400 K (70% of the images)"
    (panel,) = sections[-1].parts
    assert panel.name == "shop-conditions-panel" and panel.caption and panel.reading
    assert panel.data_table.rows == [["as published", "30%"], ["warmer, 4,400 K", "70%"]]


def test_page_of_images_names_their_condition():
    verdict = DatasetVerdict(state="ok", conditions=SHARES, condition="warmer, 4,400 K")
    assert verdict_facts(verdict)["condition"] == "warmer, 4,400 K (70% of the images)"
    assert [section.title for section in build_drift_sections(verdict)] == ["Verdict"]


def test_nothing_is_said_of_one_condition():
    verdict = StreamVerdict(state="ok", conditions={"as published": 1.0}, condition="as published")
    assert "condition" not in verdict_facts(verdict)
    assert "condition" not in verdict_facts(StreamVerdict(state="ok"))
    sections = build_drift_sections(verdict, build_history([20, 40]))
    assert [section.title for section in sections] == ["Verdict", "Charts"]


@pytest.mark.parametrize("step_count", [0, 1])
def test_no_area_is_drawn_of_less_than_two_steps(step_count):
    history = build_history([20] * step_count, plain=[1.0] * step_count, warm=[0.0] * step_count)
    assert build_condition_panel(StreamVerdict(state="ok", conditions=SHARES), history, "") is None
    assert build_condition_panel(StreamVerdict(state="ok", conditions=SHARES), None, "") is None


def test_two_steps_are_one_area():
    assert draw_shares(build_history([20, 40], plain=[0.0, 0.4], warm=[1.0, 0.6])) == {"plain": [0.4], "warm": [0.6]}
