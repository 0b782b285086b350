"""What a plan with several ways of exchange says of itself: no comparison, misspelt names, what training cannot do."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.exchanges.exchange_columns import read_runs_by_exchange, read_steps_by_exchange
from equipoise.planning.exchanges.exchange_notes import describe_unknown_names, suggest_exchange
from equipoise.planning.exchanges.exchange_plan import ExchangeRequest, build_exchange_plan
from tests.support.errors import raises_code

STEPS = """nodes,workers,batch,seconds,gradient_bytes,exchange,sent_bytes,encode_seconds,bits_per_second
2,2,64,0.5554,11083816,,,,200e6
2,2,64,0.1035,11083816,powersgd:4,114888.0,0.0198,200e6
2,2,64,0.1079,11083816,local:32,692738.0,0,200e6
"""
RUNS = "global_batch,lr,seed,examples,reached,exchange,workers\n" + "".join(
    f"128,0.0883883,{seed},{examples + 40 * seed},1,{name}\n"
    for name, examples in ((",", 5635), ("powersgd:4,2", 5113), ("local:32,2", 6907))
    for seed in range(3)
)


def plan(folder, steps=STEPS, runs=RUNS, **wanted):
    (folder / "system.csv").write_text(steps)
    (folder / "statistical.csv").write_text(runs)
    request = PlanRequest(
        system=read_steps_by_exchange(folder / "system.csv"),
        statistical=read_runs_by_exchange(folder / "statistical.csv"),
    )
    return build_exchange_plan(request, ExchangeRequest(**wanted)).document


def drop_lines(text, part):
    return "".join(line for line in text.splitlines(keepends=True) if part not in line)


def find_notes(document, part):
    return [warning for warning in document.warnings if part in warning]


def test_a_complete_table_needs_no_notes(tmp_path):
    document = plan(tmp_path)
    assert document.plan.exchange == "powersgd:4"
    for part in ("compared", "no plan with", "no known way", "equipoise train"):
        assert not find_notes(document, part)


def test_parts_of_a_step_are_told_only_where_one_worker_was_timed(tmp_path):
    unknown = plan(tmp_path).plan
    assert unknown.binding == "unknown" and "ms computing" not in unknown.why
    assert "step times of one worker would tell computing from the exchange" in unknown.why
    alone = plan(tmp_path, drop_lines(STEPS, "powersgd") + "1,1,64,0.1,11083816,,,,\n", drop_lines(RUNS, "powersgd"))
    exact = next(option for option in alone.options if option.workers == 2)
    assert alone.plan.exchange == "local:32" and exact.binding == "unknown"
    steps = drop_lines(STEPS, "local") + "1,1,64,0.1,11083816,,,,\n"
    with raises_code("measurements-missing", "bf16 on 2 workers at 200 Mbit/s needs rows of another number of workers"):
        plan(
            tmp_path, steps, drop_lines(RUNS, "local"), names=("bf16",)
        )  # and nothing for one, which exchanges nothing


def test_examples_of_local_sgd_without_their_workers_count_for_any_number(tmp_path):
    steps = STEPS + "4,4,32,0.12,11083816,local:32,692738.0,0,200e6\n4,4,32,0.7,11083816,,,,200e6\n"
    only = drop_lines(steps, "powersgd"), drop_lines(RUNS, "powersgd")
    assert not find_notes(plan(tmp_path, *only), "column workers")
    notes = find_notes(plan(tmp_path, only[0], only[1].replace("local:32,2", "local:32,")), "column workers")
    assert len(notes) == 1 and "training runs with local:32 do not say" in notes[0]


def test_exact_sums_move_to_another_rate_by_the_bytes_of_their_gradient(tmp_path):
    document = plan(tmp_path, rates=(1e9,))
    assert document.plan.exchange == "powersgd:4" and not find_notes(document, "compared")
    exact = [row for row in document.system.predictions if row.exchange == "" and row.bits_per_second == 1e9]
    assert exact[0].seconds == pytest.approx(0.5554 - 8 * 11083816 * (1 / 200e6 - 1 / 1e9))  # half the bytes go twice
    fast = plan(tmp_path, rates=(1e11,))
    assert fast.plan.exchange != ""
    assert fast.plan.seconds.value < document.plan.seconds.value


def test_a_plan_that_could_not_be_compared_with_exact_sums_says_so(tmp_path):
    without_runs = plan(tmp_path, runs=drop_lines(RUNS, ",,"))
    notes = find_notes(without_runs, "could not be compared with exact sums")
    assert len(notes) == 1 and notes[0].endswith("--statistical has no row with an empty column exchange")
    assert not find_notes(without_runs, "no plan with")
    without_steps = plan(tmp_path, drop_lines(STEPS, "0.5554"))
    assert "--system has no row with an empty column exchange" in find_notes(without_steps, "could not be compared")[0]
    without_rows = plan(tmp_path, drop_lines(STEPS, "0.5554"), drop_lines(RUNS, ",,"))
    notes = find_notes(without_rows, "could not be compared with exact sums")
    assert len(notes) == 1 and "--statistical has no row with an empty column exchange" in notes[0]


def test_what_a_way_of_exchange_lacks_is_the_one_thing_that_is_said(tmp_path):
    no_run = plan(tmp_path, runs=drop_lines(RUNS, "local:32"))
    expected = "no plan with local:32: --statistical has no row with local:32 in its column exchange"
    assert find_notes(no_run, "local:32") == [expected]
    misspelt = plan(tmp_path, runs=RUNS.replace("local:32", "lcoal:32"))
    assert find_notes(misspelt, "lcoal:32") == [
        "training runs with 'lcoal:32' (did you mean local:32?) are not used: --system has no row with that in its"
        " column exchange"
    ]
    no_rate = plan(tmp_path, STEPS.replace("local:32,692738.0,0,200e6", "local:32,,0,"), rates=(1e9,))
    assert find_notes(no_rate, "local:32") == [
        "no plan with local:32: its step times at 1 Gbit/s need bits_per_second of its rows"
    ]
    workers = plan(tmp_path, runs=RUNS.replace("local:32,2", "local:32,4"))
    assert find_notes(workers, "local:32") == ["no plan with local:32: it was timed on 2 workers and trained on 4"]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("local:4/powersgd:2", "weights and moments travel"),
        ("async:2/servers:9", "got 9 servers for 2 workers"),
        ("bf16/ring", "an exchange of its own"),
        ("ours", "no such way of exchange"),
    ],
)
def test_a_plan_that_training_refuses_says_so(tmp_path, name, part):
    document = plan(tmp_path, STEPS.replace("powersgd:4", name), RUNS.replace("powersgd:4", name))
    assert document.plan.exchange == name
    notes = find_notes(document, "equipoise train cannot use this plan")
    assert len(notes) == 1 and part in notes[0]


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("PowerSGD:4", "powersgd:4"),
        ("Local:8/BF16", "local:8/bf16"),
        ("lokal:8", "local:8"),
        ("topkk:0.01", "topk:0.01"),
        ("nan", ""),
        ("5", ""),
        ("ours", ""),
        ("local", ""),  # without its number
        ("local:0x", ""),
        ("bf16", ""),
    ],
)
def test_misspelt_names_have_a_suggestion(name, suggestion):
    assert suggest_exchange(name) == suggestion


def test_names_that_are_no_ways_of_exchange_are_told_in_one_sentence(tmp_path):
    assert describe_unknown_names(["", "bf16", "local:8/tree"]) == []
    sentence = describe_unknown_names(["", "PowerSGD:4", "nan"])
    assert sentence == [
        "'PowerSGD:4' (did you mean powersgd:4?), 'nan' are no known ways of exchange, so that only what the rows say"
        " is known of them"
    ]
    document = plan(tmp_path, STEPS.replace("powersgd:4", "PowerSGD:4"), RUNS.replace("powersgd:4", "PowerSGD:4"))
    assert len(find_notes(document, "did you mean powersgd:4?")) == 1
    with raises_code("option-choice", "did you mean powersgd:4?"):
        plan(tmp_path, drop_lines(STEPS, "powersgd:4"), names=("PowerSGD:4",), rates=(1e9,))


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("0.0198", "5", "row 3, column encode_seconds: it takes 5 s, and the whole step 0.103 s"),
        ("114888.0", "1e18", "row 3, column sent_bytes: at bits_per_second they take 4e+10 s"),
    ],
)
def test_parts_longer_than_their_step_are_refused(tmp_path, old, new, part):
    path = tmp_path / "system.csv"
    path.write_text(STEPS.replace(old, new))
    with raises_code("table-invalid", part):
        read_steps_by_exchange(path)
    path.write_text(STEPS.replace("2,2,64", "1,2,64").replace("114888.0", "1e18"))  # within a node nobody knows
    assert isinstance(read_steps_by_exchange(path), pd.DataFrame)


def test_bytes_of_unknown_exchanges_stay_unknown(tmp_path):
    steps = STEPS.replace("powersgd:4,114888.0", "ours,")
    document = plan(tmp_path, steps, RUNS.replace("powersgd:4", "ours"), rates=(1e9,))
    assert find_notes(document, "no plan with ours") == [
        "no plan with ours: its step times at 1 Gbit/s need sent_bytes of its rows, or rows at a second rate"
    ]
    assert not np.isnan(document.plan.seconds.value)
