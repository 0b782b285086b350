import pandas as pd
import pytest

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.exchanges.algorithm_times import (
    assign_nodes,
    fit_algorithm_links,
    replace_ring_messages,
)
from equipoise.planning.exchanges.exchange_columns import read_algorithm_times
from equipoise.planning.exchanges.exchange_plan import ExchangeRequest, build_exchange_plan
from equipoise.planning.exchanges.exchange_time import all_reduce_cost, all_reduce_seconds
from equipoise.planning.plan import ClusterShape
from equipoise.planning.step_time_fit import fit_step_time
from tests.support.errors import raises_code

GRADIENT_BYTES, ALPHA, BETA = 1e7, 0.0114, 4e-8  # a ring's message pays the delay of the link twice
LINK_DELAY = 0.0057


def build_sums(name, sizes, ranks=(2, 4), alpha=ALPHA):
    costs = [(count, size, all_reduce_cost(name, count, size, count)) for count in ranks for size in sizes]
    rows = [(name, count, size, all_reduce_seconds(cost, between=(alpha, BETA))) for count, size, cost in costs]
    return pd.DataFrame(rows, columns=["algorithm", "ranks", "bytes", "seconds"])


def build_steps(workers=(1, 2, 4)):
    rows = [
        (count, count, batch, 0.01 + 0.001 * batch + 2 * (count - 1) * (ALPHA + GRADIENT_BYTES * BETA / count))
        for count in workers
        for batch in (8, 16, 32)
    ]
    return pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds"]).assign(gradient_bytes=GRADIENT_BYTES)


def test_each_algorithm_has_its_own_delay():
    sums = pd.concat([build_sums("ring", (1e3, 1e5, 1e6)), build_sums("tree", (1e3, 1e6), alpha=0.003)])
    links = fit_algorithm_links(assign_nodes(sums, build_steps()))
    assert links["ring", True] == pytest.approx((ALPHA, BETA))
    assert links["tree", True] == pytest.approx((0.003, BETA))


def test_small_sums_alone_tell_the_delay():
    link = fit_algorithm_links(build_sums("direct", (8,)).assign(nodes=2))["direct", True]
    assert link.alpha == pytest.approx(ALPHA, rel=1e-4) and link.beta is None


def test_rings_replace_messages_so_that_larger_rings_are_predicted_right():
    """Half of a ping-pong takes half of a ring's message: with it as the same alpha, eight nodes come out too fast."""
    messages = pd.DataFrame(
        [(count, count, "message", 8 / GRADIENT_BYTES, LINK_DELAY) for count in (2, 4)],
        columns=["nodes", "workers", "kind", "share", "seconds"],
    )
    large = pd.DataFrame([(2, 2, "sum", 0.5, 2 * (ALPHA + 0.25 * GRADIENT_BYTES * BETA))], columns=messages.columns)
    exchanges = pd.concat([messages, large], ignore_index=True)
    sums = assign_nodes(build_sums("ring", (1e3, 1e4, 1e6)), build_steps())
    mended = fit_step_time(build_steps(), replace_ring_messages(exchanges, sums, GRADIENT_BYTES))
    assert mended.parameters["between_alpha"] == pytest.approx(ALPHA, rel=0.05)
    plain = fit_step_time(build_steps(), exchanges)
    assert plain.parameters["between_alpha"] < 0.8 * ALPHA


def test_plan_is_fitted_to_rings_and_has_the_delay_of_each_algorithm():
    messages = pd.DataFrame(
        [(count, count, "message", 8 / GRADIENT_BYTES, LINK_DELAY) for count in (2, 4)],
        columns=["nodes", "workers", "kind", "share", "seconds"],
    )
    sums = pd.concat([build_sums("ring", (1e3, 1e4, 1e6)), build_sums("tree", (1e3, 1e6), alpha=0.003)])
    request = PlanRequest(
        system=build_steps(), exchange=messages, cluster_shapes=(ClusterShape(2, 2), ClusterShape(8, 8))
    )
    plan = build_exchange_plan(request, ExchangeRequest(names=("", "tree"), sums=sums)).document
    seconds = {(row.exchange, row.nodes): row.seconds for row in plan.system.predictions if row.batch == 32}
    for name, alpha in (("", ALPHA), ("tree", 0.003)):
        for nodes in (2, 8):
            cost = all_reduce_cost(name or "ring", nodes, GRADIENT_BYTES, nodes)
            expected = 0.042 + all_reduce_seconds(cost, between=(alpha, BETA))
            assert seconds[name, nodes] == pytest.approx(expected, rel=0.05), (name, nodes)


def test_without_rings_the_exchanges_stay():
    sums = assign_nodes(build_sums("tree", (1e3,)), build_steps())
    assert replace_ring_messages(None, sums, GRADIENT_BYTES) is None


def test_nodes_are_those_of_the_step_times():
    sums = build_sums("ring", (1e3,), ranks=(2, 8))
    assert assign_nodes(sums, build_steps()).nodes.tolist() == [2, 8]
    assert assign_nodes(sums, build_steps().assign(nodes=1)).nodes.tolist() == [1, 1]
    assert assign_nodes(sums.assign(nodes=2), build_steps()).nodes.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("header", "row", "sentence"),
    [
        ("name,ranks,bytes,seconds", "ring,2,1000,0.5", "it needs algorithm,ranks,bytes,seconds"),
        ("algorithm,ranks,bytes,seconds,algorithm", "ring,2,1000,0.5,tree", "two columns named algorithm"),
        ("algorithm,nodes,nodes,ranks,bytes,seconds", "ring,1,2,2,1000,0.5", "two columns named nodes"),
        ("algorithm,nodes,ranks,bytes,seconds", "ring,3,2,1000,0.5", "row 2, column ranks: fewer workers than nodes"),
        ("algorithm,ranks,bytes,seconds", "doubling,3,1000,0.5", "row 2, column algorithm: cannot sum over 3 workers"),
    ],
)
def test_error_names_the_column_of_the_table(tmp_path, header, row, sentence):
    path = tmp_path / "sums.csv"
    path.write_text("\n".join([header, row, row]))
    with raises_code("table-invalid", sentence):
        read_algorithm_times(path)


@pytest.mark.parametrize(
    ("old", "new"), [("ring", "star"), (",2,", ",1,"), ("1000", "-5"), ("algorithm", "name"), ("0.5", "0")]
)
def test_bad_tables_of_sums_are_refused(tmp_path, old, new):
    path = tmp_path / "sums.csv"
    text = "algorithm,ranks,bytes,seconds\nring,2,1000,0.5\ntree,4,1000,0.7\n"
    path.write_text(text)
    assert read_algorithm_times(path).ranks.tolist() == [2, 4]
    path.write_text(text.replace(old, new, 1))
    with raises_code("table-invalid", path):
        read_algorithm_times(path)


@pytest.mark.parametrize(("largest", "has_rate"), [(8000, True), (7999, False)])
def test_rates_need_sums_of_eight_times_the_bytes(largest, has_rate):
    link = fit_algorithm_links(build_sums("ring", (1000, largest), ranks=(2,)).assign(nodes=2))["ring", True]
    assert (link.beta is not None) == has_rate
    if has_rate:
        assert link == pytest.approx((ALPHA, BETA))


def test_links_are_told_apart_by_their_level_and_two_level_sums_are_left_out():
    sums = pd.concat(
        [
            build_sums("ring", (8,)).assign(nodes=1),
            build_sums("ring", (8,), alpha=0.5).assign(nodes=2),
            build_sums("two-level", (8,), ranks=(4,)).assign(nodes=2),
        ]
    )
    links = fit_algorithm_links(sums)
    assert links.keys() == {("ring", False), ("ring", True)}
    assert links["ring", True].alpha == pytest.approx(0.5, rel=1e-3)
    assert links["ring", False].alpha == pytest.approx(ALPHA, rel=1e-3)


def test_workers_without_step_times_are_on_nodes_like_the_others():
    sums = build_sums("ring", (1e3,), ranks=(2, 16))
    assert assign_nodes(sums, build_steps()).nodes.tolist() == [2, 16]
    assert assign_nodes(sums, build_steps().assign(nodes=1)).nodes.tolist() == [1, 1]
    two_per_node = build_steps((2, 4)).assign(nodes=lambda rows: rows.workers // 2)
    assert assign_nodes(build_sums("ring", (1e3,), ranks=(2, 4, 16)), two_per_node).nodes.tolist() == [1, 2, 16]


def test_rings_replace_messages_of_their_own_level_alone():
    columns = ["nodes", "workers", "kind", "share", "seconds"]
    rows = [(1, 2, "message", 0.1, 1.0), (2, 2, "message", 0.2, 2.0), (2, 2, "sum", 0.3, 3.0)]
    exchanges = pd.DataFrame(rows, columns=columns)
    rings = build_sums("ring", (1e6,), ranks=(2,)).assign(nodes=2)
    replaced = replace_ring_messages(exchanges, rings, GRADIENT_BYTES)
    assert replaced.share.tolist() == pytest.approx([0.1, 0.3, 0.1])
    assert replaced.kind.tolist() == ["message", "sum", "sum"] and replaced.nodes.tolist() == [1, 2, 2]
    alone = replace_ring_messages(None, rings, GRADIENT_BYTES)
    assert alone.workers.tolist() == [2] and alone.seconds.tolist() == rings.seconds.tolist()
