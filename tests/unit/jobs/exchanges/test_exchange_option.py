"""The option --exchanges, and the ways of exchange that a sweep considers by it."""

from dataclasses import replace

import pandas as pd
import pytest

from equipoise.planning.exchange_choice.exchange_bounds import DEFAULT_CANDIDATES
from jobs.ray_tune.exchanges.exchange_facts import ExchangeFacts
from jobs.ray_tune.exchanges.exchange_option import require_usable_exchanges, require_usable_ranks
from jobs.ray_tune.exchanges.exchange_sweep import (
    add_asynchronous_candidate,
    keep_candidates_between_nodes,
    list_candidates,
)
from jobs.ray_tune.sweep_options import build_sweep_options
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    ("names", "code", "part"),
    [
        (("local:0",), "option-range", "local:0"),
        (("topk:2",), "option-range", "topk:2"),
        (("lokal:8",), "option-choice", "lokal:8"),
        (("async:2/bf16",), "option-conflict", "not compressed"),
        (("server/servers:3",), "option-range", "3 servers on 2 workers"),
        (("step",), "option-choice", "every sweep measures exact sums"),
        (("local:8/powersgd:2",), "option-conflict", "weights and moments travel"),
        (("bf16/tree",), "option-conflict", "--all-reduce tree"),
        (("bf16", "none"), "option-conflict", "together with others"),
        (("auto", "bf16"), "option-conflict", "together with others"),
        ((), "option-missing", "--exchanges"),
    ],
)
def test_ways_of_exchange_that_a_sweep_cannot_try_are_refused(names, code, part):
    with raises_code(code, part):
        require_usable_exchanges(names, 2, None)


def test_named_ways_need_several_workers_and_a_workload():
    with raises_code("option-conflict", "with one worker"):
        require_usable_exchanges(("bf16",), 1, None)
    with raises_code("option-conflict", "with a --command"):
        require_usable_exchanges(("bf16",), 2, "train {lr}")
    for switch in ("auto", "none"):
        require_usable_exchanges((switch,), 1, "train {lr}")


def test_a_rank_must_shorten_a_matrix_of_the_model():
    shapes = [(10, 20), (20,), (4, 3, 3, 3)]  # of rank 6 two matrices of the first have 180 numbers of its 200
    require_usable_ranks(("powersgd:6", "bf16", "local:8"), shapes)
    require_usable_ranks(("powersgd:100000",), ())  # of a command
    require_usable_ranks(("auto",), shapes)
    with raises_code("compression-unusable", "cannot try powersgd:7: no matrix", "choose powersgd:6 or a lower rank"):
        require_usable_ranks(("bf16", "powersgd:7"), shapes)
    with raises_code("compression-unusable", "choose bf16 or int8"):
        require_usable_ranks(("powersgd:1",), [(20,)])


def test_sweep_refuses_them_before_anything_is_measured():
    options = build_sweep_options("digits", "x", [1, 2], {"exchanges": "local:16"})
    assert options.exchanges == ("local:16",)
    options.validate()
    with raises_code("option-conflict", "with one worker"):
        build_sweep_options("digits", "x", [1], {"exchanges": ["local:16", "bf16"]}).validate()


def test_all_usual_ways_are_considered_unless_some_or_none_are_named(capsys):
    assert list_candidates(("auto",), 2, None) == DEFAULT_CANDIDATES
    assert list_candidates(("none",), 2, None) == ()
    assert list_candidates(("bf16", "local:8/none"), 2, None) == ("bf16", "local:8")
    assert not capsys.readouterr().out


def test_diloco_is_considered_with_local_sgd_at_its_interval():
    assert list_candidates(("diloco:8", "local:8"), 2, None) == ("diloco:8", "local:8")
    assert list_candidates(("diloco:8",), 2, None) == ("diloco:8", "local:8")


@pytest.mark.parametrize(("workers", "command"), [(1, None), (2, "train {lr}")])
def test_a_single_worker_and_a_command_have_no_other_way_for_one_reason(workers, command, capsys):
    assert list_candidates(("auto",), workers, command) == ()
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize(
    ("names", "most_nodes", "candidates"),
    [(("auto",), 1, ()), (("auto",), 2, ("bf16", "local:8")), (("bf16", "local:8"), 1, ("bf16", "local:8"))],
)
def test_workers_of_one_machine_try_other_ways_only_by_name(names, most_nodes, candidates):
    facts = ExchangeFacts(candidates=("bf16", "local:8"))
    assert keep_candidates_between_nodes(facts, names, most_nodes).candidates == candidates


def test_unequal_workers_make_asynchronous_updates_a_candidate(capsys):
    facts = ExchangeFacts(candidates=("bf16",))
    steps = pd.DataFrame({"nodes": [3], "workers": [3], "batch": [16], "seconds": [0.03]})
    steps = steps.assign(seconds_by_worker="0.01 0.01 0.03")
    assert add_asynchronous_candidate(facts, ("auto",), steps).candidates == ("bf16", "async:6")
    assert "rank 2 takes 3 times as long" in capsys.readouterr().out
    for names, table in ((("bf16",), steps), (("auto",), steps.drop(columns="seconds_by_worker"))):
        assert add_asynchronous_candidate(facts, names, table) is facts
    assert add_asynchronous_candidate(replace(facts, candidates=()), ("auto",), steps).candidates == ()
