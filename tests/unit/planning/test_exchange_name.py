import pytest

from equipoise.planning.exchanges.exchange_name import parse_exchange
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", ""),
        ("step", ""),
        ("step/none/auto", ""),
        ("none", ""),
        ("local:16/bf16", "local:16/bf16"),
        ("bf16/local:16", "local:16/bf16"),
        (" tree ", "tree"),
        ("diloco:08/powersgd:4/ring", "diloco:8/powersgd:4/ring"),
        ("topk:0.010", "topk:0.01"),
        ("async:0", "async:0"),
        ("server/servers:0", "server"),
        ("servers:02/async:4", "async:4/servers:2"),
        ("server/two-level/servers:1", "server/two-level/servers:1"),
        ("local:1000000", "local:1000000"),
        ("step/full", "full"),
        ("full:02", "full:2"),
        ("pipeline:4", "pipeline:4"),
        ("tree/optimizer", "tree/optimizer"),
    ],
)
def test_names_lose_their_defaults(text, name):
    method = parse_exchange(text)
    assert method.name == name and method.sync is not None
    assert parse_exchange(method.name) == method


@pytest.mark.parametrize("text", ["topk_mem_ratio=0.01", "local", "bf16:2", "local:8/local:9", "fedavg:8", "a/b/c",
                                  "servers:2", "server:2", "local:4/servers:2", "server/servers",
                                  "tensor", "optimizer:2", "local:4/full", "full/bf16", "full/tensor:2"])  # fmt: skip
def test_other_names_are_opaque(text):
    method = parse_exchange(text)
    assert (method.name, method.sync, method.is_exact, method.byte_share(4)) == (text, None, False, None)


@pytest.mark.parametrize(
    "text",
    [
        "local:0",
        "diloco:-1",
        "local:1.5",
        "local:x",
        "topk:0",
        "topk:2",
        "powersgd:0",
        "async:-1",
        "local:nan",
        "server/servers:-1",
        "server/servers:1.5",
        "full:1",
        "tensor:0",
        "pipeline:1.5",
    ],
)
def test_impossible_numbers_are_refused(text):
    with raises_code("option-range", text.rpartition("/")[2].partition(":")[0]):
        parse_exchange(text)


def test_long_and_unprintable_names_are_refused():
    for text in ("x" * 101, "a\x1b[2J"):
        with raises_code("option-format"):
            parse_exchange(text)


def test_sent_bytes_are_those_of_the_sum_of_what_is_left():
    assert parse_exchange("").sent_bytes(1000, 4, 1) == 1500
    assert parse_exchange("local:8/bf16").sent_bytes(1000, 4, 1) == 1500 / 16
    assert parse_exchange("direct/int8").sent_bytes(1000, 4, 1) == 750
    assert parse_exchange("full").sent_bytes(1000, 4, 1) == 2250
    assert parse_exchange("tensor:2").sent_bytes(1000, 4, 1) is None
    assert parse_exchange("topk:0.01").sent_bytes(1000, 4, 1) == pytest.approx(3 * 2 * 0.01 * 1000)
    assert parse_exchange("powersgd:4").sent_bytes(1000, 4, 1) is None
    assert parse_exchange("fedavg").sent_bytes(1000, 4, 1) is None
    for text in ("server", "server/servers:1", "async:4/servers:2", "server/two-level"):  # in the mean over workers
        assert parse_exchange(text).sent_bytes(1000, 4, 2) == 1500


def test_only_sums_of_whole_gradients_in_every_step_are_exact():
    assert parse_exchange("tree").is_exact and parse_exchange("").is_exact
    assert not any(parse_exchange(text).is_exact for text in ("bf16", "local:1", "server", "unknown"))
    assert parse_exchange("local:2").interval_family == parse_exchange("diloco:9").interval_family
    assert parse_exchange("local:2/bf16").interval_family != parse_exchange("local:2").interval_family
    assert parse_exchange("bf16").interval_family is None


def test_servers_that_wait_for_all_workers_take_the_steps_of_exact_sums():
    assert all(parse_exchange(text).learns_exactly for text in ("", "tree", "server", "server/servers:2", "async:0"))
    assert not any(parse_exchange(text).learns_exactly for text in ("async:1", "local:1", "bf16", "server/bf16", "x"))
    method = parse_exchange("async:4/servers:2")
    assert (method.staleness, method.servers, method.has_store) == (4, 2, True)
    assert method.number_family == parse_exchange("async:1/servers:2").number_family
    assert method.number_family != parse_exchange("async:4").number_family and not parse_exchange("tree").number_family
    assert parse_exchange("local:2").number_family == parse_exchange("local:2").interval_family
