"""Limits of a plan as texts: what is refused in the words of the command, and the sliders that write them."""

import pytest

from equipoise.errors import EquipoiseError
from equipoise.planning.replanning.replanner import LimitRange, LimitRanges
from services.site.plans.plan_limits import LimitTexts, build_sliders

RANGES = LimitRanges(
    deadline_seconds=LimitRange(low=10.0, high=100.0),
    worker_seconds=LimitRange(low=36.0, high=360.0),
    nodes=(1, 2, 4),
    measured_nodes=2,
    bits_per_second=LimitRange(low=1e7, high=1e11, measured=1e9),
    delay_seconds=None,
)


def test_texts_become_limits():
    limits = LimitTexts(deadline="15m", budget="40usd", price="3usd", nodes="4", rate="100", delay="2").parse()
    assert limits.deadline_seconds == 900 and limits.max_nodes == 4
    assert limits.cost.budget_dollars == 40 and limits.cost.prices.otherwise == 3
    assert limits.links.bits_per_second == 1e8 and limits.links.delay_seconds == 2e-3
    assert LimitTexts().parse().links.is_empty


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({"deadline": "soon"}, "cannot parse the duration 'soon'; give a time such as 90s, 15m or 2h"),
        ({"budget": "40usd"}, "--budget and --price belong together"),
        ({"price": "cheap"}, "--price must be an amount such as 40usd"),
        ({"nodes": "0"}, "cannot use nodes=0"),
        ({"nodes": "1.5"}, "cannot use nodes=1.5"),
        ({"rate": "fast"}, "cannot use rate=fast"),
        ({"rate": "-1"}, "cannot use rate=-1"),
        ({"delay": "inf"}, "cannot use delay=inf"),
        ({"delay": "nan"}, "cannot use delay=nan"),
    ],
)
def test_nonsense_is_refused_in_the_words_of_the_command(texts, sentence):
    with pytest.raises(EquipoiseError) as refused:
        LimitTexts.from_values(texts).parse()
    assert str(refused.value).startswith(sentence)


def test_long_texts_are_refused():
    with pytest.raises(EquipoiseError, match="cannot use deadline"):
        LimitTexts.from_values({"deadline": "9" * 201})


def test_sliders_move_what_was_measured_alone():
    sliders = {slider.name: slider for slider in build_sliders(LimitTexts(deadline="90s"), RANGES, None)}
    assert sliders["deadline"].is_active and sliders["deadline"].text == "90s"
    assert not sliders["budget"].is_active and sliders["budget"].hint == "give a price first"
    assert not sliders["delay"].is_active and "time one more number of workers" in sliders["delay"].hint
    assert sliders["rate"].low == pytest.approx(10) and "measured: 1,000" in sliders["rate"].hint
    assert sliders["nodes"].steps == (1, 2, 4)
    priced = {slider.name: slider for slider in build_sliders(LimitTexts(price="10usd"), RANGES, 10.0)}
    assert priced["budget"].is_active and priced["budget"].low == pytest.approx(0.1)
