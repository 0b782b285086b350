"""Options of training that make a way of exchange, and back."""

import pytest

from equipoise.config import TrainConfig
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.training_options import (
    find_exchange_options,
    format_sync,
    name_exchange,
    replace_exchange,
)
from tests.support.errors import raises_code

CONFIG = TrainConfig(workload="digits", workers=4)
STEP = {"sync": "step", "compression": "none"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("", STEP),
        ("tree", STEP | {"all_reduce": "tree"}),
        ("int8", STEP | {"compression": "int8"}),
        ("local:8/bf16", {"sync": "local:8", "compression": "bf16"}),
        ("diloco:16", {"sync": "diloco:16", "compression": "none"}),
        ("server", {"sync": "server", "compression": "none", "servers": 0}),
        ("async:3/servers:2", {"sync": "async:3", "compression": "none", "servers": 2}),
        (
            "server/two-level/servers:2",
            {"sync": "server", "compression": "none", "all_reduce": "two-level", "servers": 2},
        ),
        ("full:2", STEP | {"sharding": "full:2"}),
    ],
)
def test_a_name_tells_the_options_that_differ_from_plain_training(name, options):
    assert find_exchange_options(parse_exchange(name), "cannot train") == options


def test_a_name_of_others_is_refused_with_what_cannot_be_done():
    with raises_code("option-choice", "cannot time fedavg: training has no such way", "local:16"):
        find_exchange_options(parse_exchange("fedavg"), "cannot time fedavg")
    with raises_code("option-choice", "cannot train with fedavg"):
        replace_exchange(CONFIG, "fedavg")
    for name in ("server/int8", "server/ring", "async:3/two-level", "local:4/topk:0.1"):
        with raises_code("option-conflict"):
            find_exchange_options(parse_exchange(name), "cannot train")
    assert find_exchange_options(parse_exchange("int8/ring"), "cannot train")["all_reduce"] == "ring"


def test_algorithms_that_servers_cannot_use_give_way():
    ring = replace_exchange(CONFIG, "ring")
    assert (ring.all_reduce, replace_exchange(ring, "server").all_reduce) == ("ring", "backend")
    assert replace_exchange(ring, "optimizer").all_reduce == "ring"
    assert replace_exchange(ring, "full").all_reduce == "backend"
    auto = replace_exchange(CONFIG, "auto")
    assert auto == CONFIG
    two_level = TrainConfig(workload="digits", workers=4, all_reduce="two-level")
    assert replace_exchange(two_level, "server/servers:2").all_reduce == "two-level"


@pytest.mark.parametrize(
    "name",
    ["", "local:8", "diloco:4/bf16", "server", "server/servers:3", "async:0", "async:2/servers:1", "int8", "full",
     "tensor:2", "optimizer"],
)  # fmt: skip
def test_options_have_the_name_that_made_them(name):
    other = replace_exchange(CONFIG, "async:4/servers:2")
    for base in (CONFIG, other, replace_exchange(CONFIG, "pipeline:2")):
        assert name_exchange(replace_exchange(base, name)) == name


def test_sync_is_written_as_the_option_takes_it():
    names = ["", "server", "async:0", "local:3", "diloco:7/int8"]
    assert [format_sync(parse_exchange(name)) for name in names] == ["step", "server", "async:0", "local:3", "diloco:7"]
