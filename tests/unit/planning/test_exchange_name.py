import pytest

from equipoise.planning.exchanges.compression_cost import GradientShapes
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


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("local:7", {"sync": "local", "interval": 7}),
        ("diloco:1e3/bf16", {"sync": "diloco", "interval": 1000, "compression": "bf16"}),
        ("async:0", {"sync": "async", "staleness": 0}),
        ("async:5/servers:3/two-level", {"sync": "async", "staleness": 5, "servers": 3, "all_reduce": "two-level"}),
        ("powersgd:4/tree", {"compression": "powersgd:4", "all_reduce": "tree"}),
        ("tensor:4", {"sharding": "tensor:4"}),
        ("", {}),
    ],
)
def test_a_name_has_the_values_of_its_parts_and_defaults_for_others(text, values):
    method = parse_exchange(text)
    defaults = {"sync": "step", "interval": 1, "staleness": 0, "servers": 0, "compression": "none", "all_reduce": ""}
    for name, default in (defaults | {"sharding": "none"}).items():
        assert getattr(method, name) == values.get(name, default)


def test_names_of_up_to_a_hundred_characters_are_read_and_a_refusal_shows_forty():
    assert parse_exchange("x" * 100).sync is None and parse_exchange(f" {'x' * 100} ").name == "x" * 100
    with raises_code("option-format", f"exchange '{'x' * 40}': ", "more than 100 characters"):
        parse_exchange("x" * 101)


@pytest.mark.parametrize(
    ("smallest", "below"),
    [
        ("local:1", "local:0"),
        ("diloco:1", "diloco:0.5"),
        ("async:0", "async:-1"),
        ("powersgd:1", "powersgd:0"),
        ("server/servers:1", "server/servers:-1"),
        ("full:2", "full:1"),
        ("tensor:2", "tensor:1"),
        ("pipeline:2", "pipeline:1"),
        ("topk:1e-6", "topk:0"),
    ],
)
def test_numbers_begin_at_the_smallest_that_means_something(smallest, below):
    assert parse_exchange(smallest).sync is not None
    head = below.rpartition("/")[2].partition(":")[0]
    bounds = "a share above 0 and up to 1" if head == "topk" else "a whole number of at least "
    example = "topk:0.01" if head == "topk" else f"{head}:8"
    with raises_code("option-range", f"behind {head} comes {bounds}", f"write it such as {example}"):
        parse_exchange(below)


def test_numbers_end_at_the_largest_count_and_shares_at_one():
    assert parse_exchange("local:1e12").interval == 10**12 and parse_exchange("topk:1").compression == "topk:1"
    for text in ("local:1000000000001", "async:1e13", "topk:1.001"):
        with raises_code("option-range", "above 0 and up to 1" if "topk" in text else "at least", text):
            parse_exchange(text)
    with raises_code("option-range", "a whole number of at least 1 and at most 1e+12"):
        parse_exchange("local:1000000000001")
    with raises_code("option-range", "write it such as local:8/bf16"):
        parse_exchange("local:8,bf16")


def test_shares_of_the_bytes_of_an_exact_sum():
    shapes = GradientShapes(matrices=((8, 8),), other_numbers=6)
    assert parse_exchange("powersgd:1").byte_share(4, shapes) == pytest.approx((8 + 8 + 6) / 70)
    assert parse_exchange("powersgd:1").byte_share(4, GradientShapes(matrices=())) is None
    assert parse_exchange("topk:0.05").byte_share(4) == pytest.approx(0.2)
    shares = {"": 1.0, "bf16": 0.5, "int8": 0.25, "local:4": 1.0, "server": 1.0, "optimizer": 1.5, "full": 1.5}
    assert {name: parse_exchange(name).byte_share(4) for name in shares} == shares
    assert parse_exchange("full:2").byte_share(4) is None  # groups send otherwise
    assert parse_exchange("topk:0.01").sent_bytes(1000, 4, 1) == parse_exchange("topk:0.01/ring").sent_bytes(1000, 4, 1)


def test_families_of_ways_that_differ_in_h_or_s():
    assert parse_exchange("local:2/int8/tree").interval_family == ("int8", "tree")
    assert parse_exchange("async:2/two-level/servers:3").number_family == ("async", "two-level", "3")
    assert parse_exchange("server").number_family is None and parse_exchange("mine").number_family is None
    assert parse_exchange("full").learns_exactly and not parse_exchange("full").is_exact
