"""Step times put together from a fit that is given, and what must be measured where its parts do not tell them."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.exchanges.algorithm_times import AlgorithmLink
from equipoise.planning.exchanges.compose_exchange import NEARER_RATE, ClusterSetting, ExchangeComposer
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepTimeForm

ALPHA, VOLUME, RATE, SIZE = 0.01, 0.4, 1e9, 1e7
PARAMETERS = {"a": 0.1, "c": 0.01, "local_alpha": ALPHA, "local_volume": VOLUME}
HERE = ClusterSetting(1, 4, 8)
COMPUTE = 0.1 + 0.01 * 8
DELAY, BYTES = 6 * ALPHA, 1.5 * VOLUME  # of a ring of four


def build_rows(*rows):
    columns = ["nodes", "workers", "batch", "seconds", "exchange", "sent_bytes", "encode_seconds"]
    exact = [(1, workers, batch, 1.0, "", np.nan, np.nan) for workers in (1, 2, 4) for batch in (8, 16)]
    return pd.DataFrame([*exact, *rows], columns=columns)


def build_composer(rate=RATE, rows=(), terms=("alpha", "volume"), size=SIZE, links=None, loading=0.0, **parameters):
    table = build_rows(*rows)
    fit = StepTimeFit(
        form=StepTimeForm(local_terms=terms),
        parameters=PARAMETERS | parameters,
        relative_error=0.0,
        rows=table[table.exchange == ""],
        parameter_draws=[],
        residuals=np.zeros(1),
        gradient_bytes=size,
        loading_per_example=loading,
    )
    return ExchangeComposer(fit=fit, rate=rate, rows=table, links=links or {})


def compose(composer, name, setting=HERE, rate=RATE):
    return composer.compose_seconds(parse_exchange(name), setting, rate)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("", COMPUTE + DELAY + BYTES),
        ("bf16", COMPUTE + DELAY + BYTES / 2),
        ("local:4", COMPUTE + (DELAY + BYTES) / 4),
        ("local:4/bf16", COMPUTE + (DELAY + BYTES / 2) / 4),
        ("full", COMPUTE + DELAY + 1.5 * BYTES),
        ("ring", COMPUTE + DELAY + BYTES),
        ("direct", COMPUTE + ALPHA + 3 * VOLUME),
    ],
)
def test_exchanges_take_their_share_of_the_bytes(name, seconds):
    assert compose(build_composer(), name) == pytest.approx(seconds)


def test_exchanges_that_overlap_hide_behind_computing():
    exchange = DELAY + BYTES
    hidden = (COMPUTE**2 + exchange**2) ** 0.5
    assert compose(build_composer(g=2.0), "") == pytest.approx(hidden)
    assert compose(build_composer(g=2.0), "local:4") == pytest.approx(COMPUTE + exchange / 4)  # nothing hides that


def test_no_exchange_makes_a_step_shorter_than_reading_its_batch():
    for name in ("", "local:4", "direct", "server", "bf16"):
        busy, reading = compose(build_composer(), name), HERE.batch * 0.05
        assert compose(build_composer(loading=0.05), name) == pytest.approx(max(busy, reading))
        assert compose(build_composer(loading=1.0), name) == HERE.batch


def test_one_worker_exchanges_nothing():
    for name, rate in (("", RATE), ("bf16", RATE), ("local:4", RATE), ("", 1e6)):
        assert compose(build_composer(), name, ClusterSetting(1, 1, 8), rate) == pytest.approx(COMPUTE)


def test_encoding_takes_the_median_of_rows_of_the_same_compression():
    rows = [(1, 4, 8, 1.0, name, np.nan, took) for name, took in (("int8", 0.2), ("local:2/int8", 0.4), ("int8", 0.9))]
    assert compose(build_composer(rows=rows), "int8") == pytest.approx(COMPUTE + DELAY + BYTES / 4 + 0.4)
    assert compose(build_composer(rows=rows), "local:2/int8") == pytest.approx(COMPUTE + (DELAY + BYTES / 4 + 0.4) / 2)
    assert compose(build_composer(), "int8") == "encode_seconds of rows with int8"
    timed = [(1, 4, 8, 1.0, "bf16", np.nan, 0.3)]
    assert compose(build_composer(rows=timed), "bf16") == pytest.approx(COMPUTE + DELAY + BYTES / 2 + 0.3)
    assert compose(build_composer(rows=timed), "") == pytest.approx(COMPUTE + DELAY + BYTES)


@pytest.mark.parametrize(
    ("name", "setting", "missing"),
    [
        ("mine", HERE, "rows with this exchange"),
        ("powersgd:4", HERE, "rows with this exchange"),
        ("tensor:2", HERE, "rows with this exchange"),
        ("", ClusterSetting(2, 4, 8), "rows of several workers on several nodes"),
    ],
)
def test_gaps_say_what_to_measure(name, setting, missing):
    assert compose(build_composer(), name, setting).startswith(missing)


def test_a_share_of_the_bytes_needs_the_delay_apart_from_them():
    composer = build_composer(terms=("volume",), local_alpha=0.0)
    assert compose(composer, "") == pytest.approx(COMPUTE + BYTES)
    assert compose(composer, "bf16") == "rows of another number of workers within one node"
    assert compose(composer, "local:4") == pytest.approx(COMPUTE + BYTES / 4)


def test_an_algorithm_has_the_delay_and_rate_that_it_was_timed_with():
    links = {("direct", False): AlgorithmLink(0.5, 1e-8)}
    expected = COMPUTE + 0.5 + 3 * 1e-8 * SIZE
    assert compose(build_composer(links=links), "direct") == pytest.approx(expected)
    delay_alone = {("direct", False): AlgorithmLink(0.5, None)}
    assert compose(build_composer(links=delay_alone), "direct") == pytest.approx(COMPUTE + 0.5 + 3 * VOLUME)
    other_level = {("direct", True): AlgorithmLink(0.5, 1e-8)}
    assert compose(build_composer(links=other_level), "direct") == pytest.approx(COMPUTE + ALPHA + 3 * VOLUME)
    unknown = build_composer(terms=("volume",))
    unknown.fit.parameters.pop("local_alpha")
    assert compose(unknown, "direct").startswith("sums by direct timed alone")


def test_another_rate_moves_what_the_bytes_take():
    longer = 8 * SIZE * (1 / 5e8 - 1 / RATE)
    assert compose(build_composer(), "", rate=5e8) == pytest.approx(COMPUTE + DELAY + BYTES + 1.5 * longer)
    assert compose(build_composer(), "bf16", rate=5e8) == pytest.approx(COMPUTE + DELAY + (BYTES + 1.5 * longer) / 2)
    assert compose(build_composer(), "local:4", rate=5e8) == pytest.approx(COMPUTE + (DELAY + BYTES + 1.5 * longer) / 4)
    assert compose(build_composer(), "direct", rate=5e8) == pytest.approx(COMPUTE + ALPHA + 3 * (VOLUME + longer))
    for same in (None, RATE, RATE * 1.009, RATE / 1.009):
        assert compose(build_composer(), "", rate=same) == pytest.approx(COMPUTE + DELAY + BYTES)
    assert compose(build_composer(), "", rate=RATE * 1.011) < COMPUTE + DELAY + BYTES
    heavy = build_composer(size=1e9)
    assert compose(heavy, "", rate=1e12) == NEARER_RATE


def test_another_rate_needs_the_own_one_and_the_bytes():
    assert compose(build_composer(rate=None), "", rate=1e8) == "bits_per_second of the rows with exact sums"
    assert compose(build_composer(size=None), "", rate=1e8).startswith("sent_bytes or gradient_bytes")


def test_bytes_of_the_gradient_follow_from_what_rings_sent():
    sent = [(1, workers, 8, 1.0, "", 2 * (workers - 1) / workers * 3e6, np.nan) for workers in (2, 2)]
    composer = build_composer(rows=sent, size=None)
    longer = 8 * 3e6 * (1 / 5e8 - 1 / RATE)
    assert compose(composer, "", rate=5e8) == pytest.approx(COMPUTE + DELAY + BYTES + 1.5 * longer)
    own = [*sent, (1, 4, 8, 1.0, "", 1.5 * 5e6, np.nan)]
    longer = 8 * 5e6 * (1 / 5e8 - 1 / RATE)
    assert compose(build_composer(rows=own), "", rate=5e8) == pytest.approx(COMPUTE + DELAY + BYTES + 1.5 * longer)


def test_servers_take_their_pushes_after_computing():
    equal = compose(build_composer(), "server")
    assert equal == pytest.approx(COMPUTE + 2 * ALPHA + BYTES)
    assert compose(build_composer(), "server/servers:1") == pytest.approx(COMPUTE + 2 * ALPHA + 6 * VOLUME)
    assert compose(build_composer(), "server/servers:5") == "a setting with a worker for each of 5 servers"
    longer = 8 * SIZE * (1 / 5e8 - 1 / RATE)
    assert compose(build_composer(), "server", rate=5e8) == pytest.approx(COMPUTE + 2 * ALPHA + 1.5 * (VOLUME + longer))
    assert compose(build_composer(rate=None), "server", rate=1e8).startswith("bits_per_second")
    assert compose(build_composer(size=1e9), "server", rate=1e12) == NEARER_RATE
