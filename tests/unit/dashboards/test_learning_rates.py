"""The figure and table of learning rates show each trial and the best rate of each batch."""

import pandas as pd
import pytest

from dashboards.panels.learning_rates import format_lr_hover, lr_figure
from dashboards.theme import BLUE, NEUTRAL_COLOR


def build_lr_trials(*rows):
    return pd.DataFrame(rows, columns=["global_batch", "lr", "examples", "reached"]).assign(seed=0)


def test_best_rate_of_each_batch_is_joined_by_a_line():
    trials = build_lr_trials(
        *((32, 0.1, 300, 1), (32, 0.2, 100, 1), (32, 0.4, 200, 1), (64, 0.2, 300, 0), (64, 0.4, 90, 1))
    )
    figure = lr_figure(trials)
    tried, best = figure.data
    assert (list(tried.x), list(tried.y)) == ([32, 32, 64], [0.1, 0.4, 0.2])
    assert list(tried.marker.symbol) == ["circle", "circle", "x"]  # a cross: did not reach the target
    assert list(tried.text)[::2] == [
        "3.00 times the examples of the best rate (1 trial, 100% reached the target)",
        "1 trial, none reached the target",
    ]
    assert (list(best.x), list(best.y)) == ([32, 64], [0.2, 0.4])
    assert list(best.marker.symbol) == ["circle", "circle-open"]
    assert list(best.text) == ["lower and higher rates were tried", "the lowest or highest rate tried"]
    assert (tried.mode, tried.marker.color, best.mode, best.line.color) == (
        *("markers", NEUTRAL_COLOR),
        *("lines+markers", BLUE),
    )


def test_rate_that_never_reached_the_target_is_not_the_best():
    tried, best = lr_figure(build_lr_trials((32, 0.1, 100, 0), (32, 0.2, 200, 0), (64, 0.1, 100, 1))).data
    assert (list(tried.x), list(best.x)) == ([32, 32], [64])


def test_axes_of_the_rates():
    layout = lr_figure(build_lr_trials((32, 0.01, 100, 1), (36, 0.2, 100, 1), (2048, 0.4, 100, 1))).layout
    assert list(layout.xaxis.tickvals) == [32, 2048] and list(layout.xaxis.ticktext) == ["32", "2,048"]
    assert (layout.xaxis.type, layout.xaxis.title.text) == ("log", "global batch, examples")
    assert (layout.yaxis.type, layout.yaxis.title.text) == ("log", "learning rate")
    assert min(layout.yaxis.tickvals) == pytest.approx(0.01)


def test_hover_text_of_a_rate_counts_its_trials():
    assert (
        format_lr_hover(1.25, 0.5, 4) == "1.25 times the examples of the best rate (4 trials, 50% reached the target)"
    )
    assert format_lr_hover(1.25, 0.0, 2) == "2 trials, none reached the target"
