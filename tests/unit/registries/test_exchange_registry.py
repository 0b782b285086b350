"""Values of --sync and --compression: exactly which texts are taken, and which pairs of options are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.number_bounds import MAX_COUNT
from equipoise.registries.exchange_registry import (
    CompressionMethod,
    SyncMethod,
    is_share,
    is_whole_number,
    parse_compression,
    parse_sync,
    require_compatible,
    require_runnable_servers,
)
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    ("text", "kind", "interval", "staleness"),
    [
        ("step", "step", 1, 0),
        ("server", "server", 1, 0),
        ("local:1", "local", 1, 0),
        ("diloco:500", "diloco", 500, 0),
        (f"local:{MAX_COUNT}", "local", MAX_COUNT, 0),
        ("async:0", "async", 1, 0),
        ("async:7", "async", 1, 7),
    ],
)
def test_a_sync_is_parsed(text, kind, interval, staleness):
    sync = parse_sync(text)
    assert (sync.kind, sync.interval, sync.staleness) == (kind, interval, staleness)
    assert sync.is_local == (kind in ("local", "diloco")) and sync.has_store == (kind in ("server", "async"))


@pytest.mark.parametrize(
    "text",
    ["", "steps", "step:", "server:2", "local", "local:", "local:0", "local:1.5", "local:-1", "local:²", "diloco:x"],
)
def test_other_texts_are_no_sync(text):
    with raises_code("option-choice", "local:16"):
        parse_sync(text)


def test_a_way_of_exchange_is_taken_apart_into_its_options():
    with raises_code("option-choice", "write it such as --sync local:4 --compression bf16"):
        parse_sync("local:4/bf16")


@pytest.mark.parametrize("text", ["async", "async:", "async:-1", "async:1.0", f"async:{MAX_COUNT + 1}"])
def test_a_wrong_staleness_is_refused_with_an_example_of_its_own(text):
    with raises_code("option-choice", "async:4"):
        parse_sync(text)


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("none", ("none", 0)),
        ("bf16", ("bf16", 0)),
        ("int8", ("int8", 0)),
        ("powersgd:1", ("powersgd", 1)),
        ("powersgd:32", ("powersgd", 32)),
        ("topk:1", ("topk", 1)),
        ("topk:0.001", ("topk", 0.001)),
    ],
)
def test_a_compression_is_parsed(text, method):
    assert parse_compression(text) == method


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int4",
        "none:",
        "bf16:1",
        "powersgd",
        "powersgd:0",
        "powersgd:1.5",
        "topk",
        "topk:0",
        "topk:1.01",
        "topk:nan",
    ],
)
def test_other_texts_are_no_compression(text):
    with raises_code("option-choice", "powersgd:4"):
        parse_compression(text)


@pytest.mark.parametrize("parse", [parse_sync, parse_compression])
@pytest.mark.parametrize("length", [0, 39, 40, 41, 90])
def test_a_refusal_shows_no_more_than_forty_characters_of_the_text(parse, length):
    text = ("\n\u2014" + "x" * length)[:length]
    with raises_code("option-choice", f"got {text[:40]!a}") as refusal:
        parse(text)
    assert refusal.value.problem.endswith(f"got {text[:40]!a}")


@given(st.integers(0, 2 * MAX_COUNT), st.integers(0, 3))
def test_whole_numbers_are_digits_between_the_bounds(number, minimum):
    assert is_whole_number(str(number), minimum) == (minimum <= number <= MAX_COUNT)
    assert not is_whole_number(f"+{number}") and not is_whole_number(f"{number} ")


def test_whole_numbers_begin_at_one_and_end_at_the_largest_count():
    assert [is_whole_number(text) for text in ("0", "1", str(MAX_COUNT), str(MAX_COUNT + 1), "9" * 5000)] == [
        False, True, True, False, False,
    ]  # fmt: skip


def test_a_share_is_above_zero_and_up_to_one():
    texts = ("0", "-0.5", "1e-9", "1", "1.0000001", "inf", "a", "")
    assert [is_share(text) for text in texts] == [False, False, True, True, False, False, False, False]


SYNCS = [parse_sync(text) for text in ("step", "local:2", "diloco:2", "server", "async:3")]
COMPRESSIONS = [parse_compression(text) for text in ("none", "bf16", "int8", "powersgd:2", "topk:0.1")]
ALL_REDUCES = ["backend", "auto", "ring", "two-level"]


def is_refused(sync, compression, all_reduce):
    try:
        require_compatible(sync, compression, all_reduce)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("all_reduce", ALL_REDUCES)
def test_exchanges_exclude_each_other(sync, compression, all_reduce):
    is_compressed = compression.kind != "none"
    has_store, sends_weights = sync.kind in ("server", "async"), sync.kind != "step"
    excluded = [
        compression.kind in ("bf16", "int8", "topk") and all_reduce in ("ring", "two-level"),
        has_store and (is_compressed or all_reduce == "ring"),
        sync.kind == "async" and all_reduce == "two-level",
        sends_weights and compression.kind in ("powersgd", "topk"),
    ]
    assert is_refused(sync, compression, all_reduce) == any(excluded)


@pytest.mark.parametrize(
    ("sync", "compression", "all_reduce", "words"),
    [
        ("step", "int8", "ring", ["ring", "int8", "an exchange of its own"]),
        ("server", "bf16", "backend", ["bf16", "--sync server", "not compressed"]),
        ("async:2", "none", "tree", ["tree", "--sync async", "servers sum"]),
        ("async:2", "none", "two-level", ["async:2", "do not wait"]),
        ("local:4", "topk:0.1", "backend", ["topk", "--sync local", "weights and moments"]),
        ("diloco:4", "powersgd:1", "backend", ["powersgd", "--sync diloco", "weights and moments"]),
    ],
)
def test_a_refusal_names_the_options_that_exclude_each_other(sync, compression, all_reduce, words):
    with raises_code("option-conflict", *words):
        require_compatible(parse_sync(sync), parse_compression(compression), all_reduce)


def test_the_backend_sums_by_default():
    for compression in COMPRESSIONS:
        require_compatible(SyncMethod(), compression)
    assert SyncMethod() == parse_sync("step") and CompressionMethod() == parse_compression("none")


@pytest.mark.parametrize("sync", ["server", "async:1"])
def test_each_worker_hosts_at_most_one_server(sync):
    for servers in (0, 1, 4):
        require_runnable_servers(parse_sync(sync), servers, workers=4)
    with raises_code("option-range", "5 servers for 4 workers"):
        require_runnable_servers(parse_sync(sync), 5, workers=4)


@pytest.mark.parametrize("sync", ["step", "local:2", "diloco:2"])
def test_servers_need_a_sync_that_pushes_to_them(sync):
    require_runnable_servers(parse_sync(sync), 0, workers=1)
    with raises_code("option-conflict", "--servers 1", f"--sync {sync.partition(':')[0]}"):
        require_runnable_servers(parse_sync(sync), 1, workers=4)
