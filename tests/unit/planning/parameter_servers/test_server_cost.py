import pytest

from equipoise.parameter_store.partition import list_part_bytes, store_traffic
from equipoise.planning.exchanges.exchange_time import all_reduce_cost, all_reduce_seconds
from equipoise.planning.parameter_servers.server_cost import find_part_shares, server_cost
from tests.support.errors import raises_code

SIZE = 5040.0


def count_sent_bytes(workers, parts, leaders=None, group=1):
    """Return what each worker sends, message by message, where the first of `leaders` host servers with these parts."""
    leaders = [*range(workers)] if leaders is None else leaders
    sent = [0.0] * workers
    for leader in leaders:
        for member in range(leader + 1, leader + group):
            sent[member] += SIZE  # its gradient
            sent[leader] += SIZE  # the weights
    for leader in leaders:
        for server, part in zip(leaders, parts, strict=False):
            if server != leader:
                sent[leader] += part
                sent[server] += part
    return sent


@pytest.mark.parametrize("workers", range(1, 7))
def test_bytes_are_those_of_the_messages(workers):
    for servers in range(1, min(workers, 3) + 1):
        for largest in (SIZE / servers, 0.75 * SIZE if servers > 1 else SIZE):
            parts = [largest, *[(SIZE - largest) / max(servers - 1, 1)] * (servers - 1)]
            sent = count_sent_bytes(workers, parts)
            cost = server_cost(workers, servers, SIZE, part_shares=[part / SIZE for part in parts])
            assert cost.mean_sent_bytes == pytest.approx(sum(sent) / workers)
            assert cost.max_sent_bytes == pytest.approx(max(sent))


@pytest.mark.parametrize(("nodes", "group"), [(1, 3), (2, 1), (2, 2), (3, 2)])
def test_bytes_of_two_levels_are_those_of_the_messages(nodes, group):
    for servers in range(1, nodes + 1):
        sent = count_sent_bytes(
            nodes * group, [SIZE / servers] * servers, [node * group for node in range(nodes)], group
        )
        cost = server_cost(nodes * group, servers, SIZE, nodes, is_two_level=True)
        assert cost.mean_sent_bytes == pytest.approx(sum(sent) / len(sent))
        assert cost.max_sent_bytes == pytest.approx(max(sent))
        assert (cost.local.rounds, cost.between.rounds) == (2 * (group > 1), 2 * (nodes > 1))


@pytest.mark.parametrize("workers", range(1, 9))
@pytest.mark.parametrize("has_own_node", [False, True])
def test_one_server_is_root_and_equal_parts_on_all_workers_are_a_sharded_root(workers, has_own_node):
    nodes = workers if has_own_node else 1
    for servers, algorithm in ((1, "root"), (0, "sharded-root"), (workers, "sharded-root")):
        costs = server_cost(workers, servers, SIZE, nodes), all_reduce_cost(algorithm, workers, SIZE, nodes)
        for own, other in zip(*costs, strict=True):
            assert own == pytest.approx(other), algorithm


def send_evenly(link, seconds):
    """Take a part's bytes off a link that its transfers share evenly, for so long."""
    for part in link:
        link[part] -= seconds / len(link)


def simulate_push_and_pull(parts):
    """Return when a worker has its last part back: a link of one byte a second each way, shared evenly by transfers."""
    pushed, pulled, clock = dict(enumerate(parts)), {}, 0.0
    while pushed or pulled:
        seconds = min(min(link.values()) * len(link) for link in (pushed, pulled) if link)
        for link in (pushed, pulled):
            send_evenly(link, seconds)
        clock += seconds
        pulled = {part: left for part, left in pulled.items() if left > 1e-9}
        arrived = [part for part, left in pushed.items() if left <= 1e-9]
        pulled |= {part: parts[part] for part in arrived}
        pushed = {part: left for part, left in pushed.items() if part not in arrived}
    return clock


@pytest.mark.parametrize(
    "parts", [(1.0,), (0.5, 0.5), (0.2, 0.8), (0.4, 0.6), (0.1, 0.3, 0.6), (0.02, 0.03, 0.25, 0.7), (0.25,) * 4]
)
def test_small_parts_of_a_node_are_pulled_while_large_ones_are_pushed(parts):
    workers = 2 * len(parts)
    cost = server_cost(workers, len(parts), SIZE, nodes=2, part_shares=parts)
    assert cost.between.serial_bytes == pytest.approx(len(parts) * simulate_push_and_pull(parts) * SIZE)


def test_workers_of_a_node_share_its_link():
    serial = [server_cost(workers, 1, SIZE, nodes).between.serial_bytes for workers, nodes in ((4, 2), (5, 2), (6, 3))]
    assert serial == pytest.approx([2 * 2 * SIZE, 2 * 2 * SIZE, 2 * 4 * SIZE])
    assert server_cost(4, 0, SIZE, 2).between.serial_bytes == pytest.approx(2 * SIZE)  # half of it is on each node


def test_more_servers_and_smaller_largest_parts_are_never_slower():
    def seconds(servers, share=None):
        shares = None if share is None else [share, *[(1 - share) / (servers - 1)] * (servers - 1)]
        return all_reduce_seconds(server_cost(6, servers, SIZE, part_shares=shares), local=(1e-4, 1e-6))

    times = [seconds(servers) for servers in range(1, 7)]
    assert times == sorted(times, reverse=True)
    assert seconds(3) < seconds(3, 0.5) < seconds(3, 0.9) < seconds(3, 1.0) == pytest.approx(seconds(1))


def test_two_levels_pass_the_slow_links_once_a_node():
    links = {"local": (1e-5, 1e-10), "between": (1e-3, 4e-8)}
    flat = all_reduce_seconds(server_cost(4, 0, 160e6, 2), **links)
    two_level = all_reduce_seconds(server_cost(4, 0, 160e6, 2, is_two_level=True), **links)
    assert flat == pytest.approx(2e-3 + 2 * 160e6 * 4e-8)
    assert two_level == pytest.approx(2e-3 + 160e6 * 4e-8 + 2e-5 + 2 * 160e6 * 1e-10)


def test_a_part_is_at_least_the_largest_key():
    assert find_part_shares([1, 1, 1, 1], 2) == [0.5, 0.5]
    assert find_part_shares([5, 90, 5], 3) == [0.9, 0.05, 0.05]
    assert find_part_shares([3, 4, 3, 2], 2) == [0.5, 0.5]
    assert find_part_shares([3, 3, 2, 2, 2], 2) == pytest.approx([7 / 12, 5 / 12])
    assert find_part_shares([], 2) is None
    sizes = {f"key{index}": size for index, size in enumerate([640, 10, 6400, 64, 10, 2000, 1999, 1998])}
    for servers in range(1, 9):  # as the servers that run divide them
        parts = list_part_bytes(sizes, servers)
        shares = find_part_shares([*sizes.values()], servers)
        assert shares == pytest.approx([part / sum(parts) for part in parts])
        for workers in range(servers, 10):
            cost = server_cost(workers, servers, sum(parts), part_shares=shares)
            traffic = store_traffic(parts, workers)
            assert (cost.max_sent_bytes, cost.rounds) == (pytest.approx(traffic.sent_bytes), traffic.rounds)


def test_impossible_stores_are_refused():
    for workers, servers, nodes in ((2, 3, 1), (2, -1, 1), (2, 1, 3)):
        with raises_code("option-range"):
            server_cost(workers, servers, SIZE, nodes)
    for shares in ([0.4, 0.4], [1.1, -0.1], [1.0]):
        with raises_code("option-range"):
            server_cost(4, 2, SIZE, part_shares=shares)
    with raises_code("option-range"):
        server_cost(3, 1, SIZE, 2, is_two_level=True)
