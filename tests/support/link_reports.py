"""Reports of links whose sums take what their closed forms say."""

from equipoise.planning.exchanges.closed_forms import add_closed_forms, closed_form_cost
from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from equipoise.planning.exchanges.link_report import LinkReport, LinkTiming, SumTiming
from equipoise.registries.all_reduce_registry import list_runnable_algorithms

ALPHA, BETA = 0.011, 4e-8  # of a message and a byte on links of 200 Mbit/s and 5 ms


def build_sum_timing(name, ranks, nodes, size, alpha=ALPHA, beta=BETA):
    """Return the row of a sum that takes what its closed form says."""
    seconds = closed_form_cost(name, ranks, nodes, size).seconds(alpha, beta)
    cost = all_reduce_cost("ring" if name == "backend" else name, ranks, size, nodes)
    return SumTiming(
        algorithm=name,
        nodes=nodes,
        ranks=ranks,
        bytes=size,
        seconds=seconds,
        seconds_low=0.9 * seconds,
        seconds_high=1.2 * seconds,
        rounds=cost.rounds,
        sent_bytes=cost.mean_sent_bytes,
        counted_bytes=1.01 * cost.mean_sent_bytes,
    )


def build_link_report(ranks=4, nodes=2, sizes=(1 << 16, 1 << 20, 1 << 24)):
    """Return a report of every algorithm on these workers, with both levels of the network."""
    names = ["backend", *list_runnable_algorithms(ranks)]
    rows = [build_sum_timing(name, ranks, nodes, size) for name in names for size in sizes]
    links = (
        LinkTiming(level="within a node", pairs=2, delay_seconds=4e-5, bytes_a_second=1.5e9),
        LinkTiming(level="between nodes", pairs=1, delay_seconds=0.0057, bytes_a_second=24e6),
    )
    return LinkReport(links=links, sums=add_closed_forms(rows), interfaces=("lo", "eth0"))
