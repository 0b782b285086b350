"""Parts of the weights on servers: every key once, balanced by bytes, and what the busiest worker sends."""

import random

import pytest

from equipoise.parameter_store.partition import (
    describe_servers,
    list_part_bytes,
    partition_keys,
    store_traffic,
)
from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from tests.support.errors import raises_code


def draw_key_bytes(generator):
    """Return keys of random sizes, sometimes with one that is larger than all the others, and some of nothing."""
    keys = {f"layer.{index}": generator.choice([0, 4, 40, 400, 4096]) for index in range(generator.randint(1, 12))}
    if generator.random() < 0.3:
        keys["embedding"] = 10 * sum(keys.values()) + 8
    return keys


@pytest.mark.parametrize("seed", range(30))
def test_every_key_is_on_one_server_and_the_largest_part_is_near_the_mean(seed):
    generator = random.Random(seed)  # noqa: S311
    key_bytes = draw_key_bytes(generator)
    servers = generator.randint(1, len(key_bytes))
    parts = partition_keys(key_bytes, servers)
    assert len(parts) == servers and all(parts)
    assert sorted(key for part in parts for key in part) == sorted(key_bytes)
    places = list(key_bytes)
    assert all(part == sorted(part, key=places.index) for part in parts)
    loads = list_part_bytes(key_bytes, servers)
    assert sum(loads) == sum(key_bytes.values()) and max(loads) == max(list_part_bytes(key_bytes, servers))
    # R. Graham: Bounds on multiprocessing timing anomalies, 1969: within 4/3 of the best parts
    best = max(sum(loads) / servers, max(key_bytes.values()))
    assert max(loads) <= best + max(key_bytes.values()) * (1 - 1 / servers) + 1e-9


def test_a_key_larger_than_all_others_has_a_server_to_itself():
    parts = partition_keys({"a": 10, "embedding": 1000, "b": 20, "c": 30}, 2)
    assert parts == [["embedding"], ["a", "b", "c"]]


def test_parts_are_described_with_the_most_and_the_fewest_bytes():
    keys = {"a": 10, "embedding": 1000, "b": 20}
    assert describe_servers(keys, 1, 5).endswith("are on 1 server")
    assert "3 servers, in parts of 10 " in describe_servers(keys, 0, 5)  # there are no keys for more
    assert "2 servers, in parts of 30 " in describe_servers(keys, 0, 2)


def test_more_servers_than_keys_are_refused():
    with raises_code("option-range", "cannot spread 2 parameters over 3 servers", "--servers 2 or fewer"):
        partition_keys({"weight": 8, "bias": 4}, 3)


@pytest.mark.parametrize("workers", range(1, 7))
def test_busiest_worker_sends_what_a_root_or_a_root_for_each_part_sends(workers):
    size = 60 * 8
    one, each = store_traffic([size], workers), store_traffic([size // workers] * workers, workers)
    assert one.sent_bytes == all_reduce_cost("root", workers, size).max_sent_bytes
    assert each.sent_bytes == pytest.approx(all_reduce_cost("sharded-root", workers, size).max_sent_bytes)
    assert one.rounds == each.rounds == all_reduce_cost("root", workers, size).rounds
    assert store_traffic([size], workers, clips=True) == one  # a server alone knows the norm


def test_busiest_worker_has_the_largest_part_and_sends_it_to_all_others():
    parts = [10, 30, 20]
    assert store_traffic(parts, 1) == (0, 0)
    assert store_traffic(parts, 2) == (60, 2)  # all that it pushes, and its own part once
    assert store_traffic(parts, 5) == (60 - 30 + 4 * 30, 2)
    assert store_traffic(parts, 5, clips=True) == (150, 3)
    assert store_traffic([10, 10], 3, clips=True) == (30, 3) and store_traffic([20], 3, clips=True) == (40, 2)


def test_keys_of_one_size_go_to_the_servers_in_turn():
    keys = dict.fromkeys("abcde", 8)
    assert partition_keys(keys, 2) == [["a", "c", "e"], ["b", "d"]]
    assert partition_keys(dict.fromkeys("abcd", 0), 3) == [["a", "d"], ["b"], ["c"]]
