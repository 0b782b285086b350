import numpy as np
import pandas as pd
import pytest

from equipoise.planning.build_document import PlanRequest, build_plan_document, read_request
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchanges.exchange_plan import ExchangeRequest, build_exchange_plan
from equipoise.planning.exchanges.exchange_time import all_reduce_cost, all_reduce_seconds
from equipoise.planning.parameter_servers.server_cost import server_cost
from equipoise.planning.plan import ClusterShape
from equipoise.planning.replanning.fit_memory import FitMemory
from tests.support.errors import raises_code

ALPHA, RATE, SIZE = 0.001, 1e9, 1e7
BATCHES = (8, 32)


def compute_seconds(batch):
    return 0.02 + 0.001 * batch


def step_seconds(workers, batch, interval=1, algorithm="ring", rate=RATE, share=1.0):
    cost = all_reduce_cost(algorithm, workers, SIZE * share)
    return compute_seconds(batch) + all_reduce_seconds(cost, local=(ALPHA, 8 / rate)) / interval


def build_steps(intervals=(), rate=RATE, workers=(1, 2, 4)):
    rows = [(1, count, batch, step_seconds(count, batch), "") for count in workers for batch in BATCHES]
    rows += [
        (1, count, batch, step_seconds(count, batch, interval), f"local:{interval}")
        for interval in intervals
        for count in workers
        for batch in BATCHES
    ]
    table = pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds", "exchange"])
    return table.assign(bits_per_second=rate, gradient_bytes=SIZE)


def build_runs(examples_by_exchange):
    rows = [
        (batch, 0.1, seed, factor * 20_000 * (1 + batch / 100) * (1 + 0.01 * seed), 1, name)
        for name, factor in examples_by_exchange.items()
        for batch in (32, 64, 128)
        for seed in range(2)
    ]
    return pd.DataFrame(rows, columns=["global_batch", "lr", "seed", "examples", "reached", "exchange"])


def predict(steps, names=(), rates=(), shapes=(), **tables):
    request = PlanRequest(system=steps, cluster_shapes=tuple(shapes), **tables)
    document = build_exchange_plan(request, ExchangeRequest(names=names, rates=rates)).document
    assert PlanDocument.from_json(document.to_json()) == document
    return document


def find(document, workers, batch, name, rate=RATE):
    rows = [
        row
        for row in document.system.predictions
        if (row.workers, row.batch, row.exchange, row.bits_per_second) == (workers, batch, name, rate)
    ]
    assert len(rows) == 1
    return rows[0]


def test_exact_rows_predict_other_ways_of_exchange_by_closed_forms():
    names = ("local:8", "bf16", "tree", "halving-doubling", "diloco:4/bf16", "int8", "powersgd:4", "opaque")
    document = predict(build_steps(), names, (1e9, 1e8), [ClusterShape(1, 8), ClusterShape(1, 6)])
    expected = {
        ("local:8", 1e9): step_seconds(8, 32, 8),
        ("bf16", 1e9): step_seconds(8, 32, share=0.5),
        ("tree", 1e9): step_seconds(8, 32, algorithm="tree"),
        ("halving-doubling", 1e8): step_seconds(8, 32, algorithm="halving-doubling", rate=1e8),
        ("diloco:4/bf16", 1e8): step_seconds(8, 32, 4, rate=1e8, share=0.5),
    }
    for (name, rate), seconds in expected.items():
        row = find(document, 8, 32, name, rate)
        assert row.seconds == pytest.approx(seconds, rel=0.05), name
        assert row.low < row.seconds < row.high and not row.measured
    missing = " ".join(document.system.missing)
    assert {"int8", "powersgd:4", "opaque"} <= {gap.split()[0] for gap in document.system.missing}
    assert "encode_seconds" in missing and "doubling on 6 workers" in missing
    assert not any(row.exchange == "opaque" for row in document.system.predictions)


def test_workers_on_nodes_of_their_own_are_predicted_at_other_rates():
    steps = build_steps()
    steps = steps.assign(nodes=steps.workers)
    document = predict(steps, ("", "bf16", "tree", "server"), (1e9, 1e8), [ClusterShape(8, 8)])
    for workers in (2, 8):
        for name, expected in (
            ("", step_seconds(workers, 32, rate=1e8)),
            ("bf16", step_seconds(workers, 32, rate=1e8, share=0.5)),
            ("tree", step_seconds(workers, 32, algorithm="tree", rate=1e8)),
            ("server", push_seconds(workers, 32, 0, 1e8)),
        ):
            assert find(document, workers, 32, name, 1e8).seconds == pytest.approx(expected, rel=0.05), (name, workers)


def push_seconds(workers, batch, servers, rate=RATE):
    cost = server_cost(workers, servers, SIZE)
    return compute_seconds(batch) + all_reduce_seconds(cost, local=(ALPHA, 8 / rate))


def test_exact_rows_predict_servers_and_workers_that_do_not_wait():
    names = ("server", "server/servers:1", "async:4", "server/servers:3")
    document = predict(build_steps(), names, (1e9, 1e8), [ClusterShape(1, 8)])
    for rate in (1e9, 1e8):
        times = [find(document, 8, 32, name, rate).seconds for name in names[:3]]
        expected = push_seconds(8, 32, 0, rate), push_seconds(8, 32, 1, rate)
        assert times == pytest.approx([*expected, expected[0]], rel=0.05)  # equal workers gain nothing
    missing = " ".join(document.system.missing)
    assert "a worker for each of 3 servers" in missing


def test_unequal_workers_of_the_rows_are_those_of_the_prediction():
    steps = build_steps()
    relative = (0.2, 0.2, 0.2, 1.0)
    own = [
        tuple(compute_seconds(batch) * share for share in relative) if workers == 4 else ()
        for workers, batch in zip(steps.workers, steps.batch, strict=True)
    ]
    document = predict(steps.assign(seconds_by_worker=own), ("async:0", "async:99", "server"))
    slow, free, waiting = (find(document, 4, 32, name).seconds for name in ("async:0", "async:99", "server"))
    push = push_seconds(4, 32, 0) - compute_seconds(32)
    periods = [compute_seconds(32) * share + push for share in relative]
    assert free == pytest.approx(4 / sum(1 / period for period in periods), rel=0.05)
    assert slow == pytest.approx(waiting) and free < 0.85 * waiting
    assert document.worker_speeds.slowest == 3


def test_rows_and_runs_of_asynchronous_updates_are_planned_by_themselves():
    steps = build_steps()
    own = steps[steps.workers == 4].assign(exchange="async:3", seconds=lambda rows: rows.seconds / 3)
    runs = pd.concat(
        [build_runs({"": 1.0}).assign(momentum=np.nan, workers=np.nan)]
        + [
            build_runs({"async:3": factor}).assign(momentum=momentum, workers=4)
            for momentum, factor in ((np.nan, 4.0), (0.0, 1.2))
        ],
        ignore_index=True,
    )
    document = predict(pd.concat([steps, own], ignore_index=True), statistical=runs)
    plan = document.plan
    assert (plan.exchange, plan.momentum, plan.workers) == ("async:3", 0.0, 4)
    assert document.exchanges[0].verdict == "use" and document.exchanges[0].exchange == "async:3"
    assert document.exchanges[0].examples_ratio.value == pytest.approx(1.2, rel=0.05)
    exact = predict(steps, statistical=build_runs({"": 1.0}))
    assert exact.plan.momentum is None and exact.plan.seconds.value > plan.seconds.value


def test_rows_of_servers_need_no_training_runs_of_their_own():
    steps = build_steps()
    own = steps[steps.workers > 1].assign(exchange="server", seconds=lambda rows: rows.seconds / 2)
    document = predict(pd.concat([steps, own], ignore_index=True), statistical=build_runs({"": 1.0}))
    assert (document.plan.exchange, document.plan.momentum) == ("server", None)
    assert "exact sums" in document.plan.why


def test_encoding_takes_what_rows_of_that_compression_say():
    steps = build_steps().assign(encode_seconds=np.nan)
    row = steps.iloc[[0]].assign(exchange="local:2/int8", encode_seconds=0.05)
    document = predict(pd.concat([steps, row], ignore_index=True), ("int8",))
    assert find(document, 4, 32, "int8").seconds == pytest.approx(step_seconds(4, 32, share=0.25) + 0.05, rel=0.05)


@pytest.mark.slow
def test_plan_takes_the_exchange_that_reaches_the_target_first():
    steps = build_steps(intervals=(8,))
    few, many = (predict(steps, statistical=build_runs({"": 1.0, "local:8": factor})) for factor in (1.1, 5.0))
    assert (few.plan.exchange, few.system.exchange) == ("local:8", "local:8")
    assert (many.plan.exchange, many.system.exchange) == ("", "")
    assert few.plan.seconds.value < many.plan.seconds.value
    exact = predict(build_steps(), statistical=build_runs({"": 1.0}))
    assert few.plan.seconds.value <= exact.plan.seconds.value == many.plan.seconds.value
    assert "exact sums" in few.plan.why and "local:8" in many.plan.why


def test_exchange_without_training_runs_is_not_planned_with():
    document = predict(build_steps(intervals=(8,)), statistical=build_runs({"": 1.0}))
    assert document.plan.exchange == ""
    assert any("local:8" in warning for warning in document.warnings)
    fastest = {(row.workers, row.batch): row for row in document.system.fastest_exchanges}
    assert fastest[4, 8].exchange == "local:8" and fastest[4, 8].compared == 2


@pytest.mark.slow
def test_plan_at_another_rate_marks_nothing_as_measured():
    steps = build_steps(intervals=(8,), workers=(2, 4)).assign(sent_bytes=np.nan)
    for index, row in steps.iterrows():
        interval = 8 if row.exchange else 1
        steps.loc[index, "sent_bytes"] = 2 * (row.workers - 1) / row.workers * SIZE / interval
    runs = build_runs({"": 1.0, "local:8": 1.3})
    slow, fast = (predict(steps, (), (rate,), statistical=runs) for rate in (5e7, 1e9))
    assert (slow.plan.exchange, slow.system.bits_per_second) == ("local:8", 5e7)
    assert not slow.plan.measured and not any(option.measured for option in slow.options)
    assert fast.plan.measured and fast.system.bits_per_second == 1e9
    assert find(slow, 4, 32, "local:8", 5e7).seconds == pytest.approx(step_seconds(4, 32, 8, rate=5e7), rel=0.05)


def test_runs_of_one_number_of_workers_plan_for_it_alone():
    runs = build_runs({"local:8": 1.0}).assign(workers=2)
    document = predict(build_steps(intervals=(8,)), statistical=runs)
    assert document.plan.exchange == "local:8"
    assert {option.workers for option in document.options} == {2}


def test_tables_without_the_columns_give_the_plan_as_before():
    steps = build_steps()[["nodes", "workers", "batch", "seconds"]]
    runs = build_runs({"": 1.0}).drop(columns="exchange")
    request = PlanRequest(system=steps, statistical=runs, cluster_shapes=(ClusterShape(1, 8),))
    assert build_exchange_plan(request, ExchangeRequest()).document == build_plan_document(request)


@pytest.mark.parametrize(
    ("old", "new"),
    [("local:8", "local:0"), ("1e9", "0"), ("5000", "-1"), ("1e9", "inf"), ("local:8", "topk:3"), ("5000", "x")],
)
def test_bad_cells_are_refused_in_one_sentence(tmp_path, old, new):
    path = tmp_path / "system.csv"
    text = "nodes,workers,batch,seconds,exchange,bits_per_second,sent_bytes\n1,2,8,0.1,local:8,1e9,5000\n1,2,8,0.2,,,\n"
    path.write_text(text)
    assert read_request(system=path).system.exchange.tolist() == ["local:8", ""]
    path.write_text(text.replace(old, new))
    with raises_code("table-invalid", path, "row 2") as refusal:
        read_request(system=path)
    assert "\n" not in str(refusal.value)


def test_opaque_names_without_bytes_cannot_be_moved_to_another_rate():
    steps = build_steps().assign(exchange="ours")
    with raises_code("measurements-missing", "ours"):
        predict(steps, (), (1e8,))
    with raises_code("option-missing"):
        build_exchange_plan(PlanRequest(statistical=build_runs({"": 1.0})), ExchangeRequest(rates=(1e8,)))


def test_one_run_counts_once_for_each_exchange(tmp_path):
    path = tmp_path / "statistical.csv"
    text = "global_batch,lr,seed,examples,reached,exchange,workers\n8,0.1,0,500,1,,2\n8,0.1,0,700,1,local:8,2\n"
    path.write_text(text)
    assert read_request(statistical=path).statistical.exchange.tolist() == ["", "local:8"]
    path.write_text(text.replace("local:8", ""))
    with raises_code("table-invalid"):
        read_request(statistical=path)


def test_gradient_bytes_follow_from_what_rings_of_any_size_sent():
    steps = build_steps().drop(columns="gradient_bytes")
    steps["sent_bytes"] = [2 * (count - 1) / count * SIZE if count > 1 else np.nan for count in steps.workers]
    document = predict(steps, ("local:8",), (RATE, 1e8), [ClusterShape(1, 8)])
    assert find(document, 8, 32, "local:8", 1e8).seconds == pytest.approx(step_seconds(8, 32, 8, rate=1e8), rel=0.05)


def test_steps_moved_to_another_rate_have_the_energy_of_their_own_time():
    steps = build_steps().assign(joules=lambda rows: 90 * rows.workers * rows.seconds)
    request = PlanRequest(system=steps, statistical=build_runs({"": 1.0}))
    moved = build_exchange_plan(request, ExchangeRequest(rates=(RATE / 8,))).request.system
    assert moved.seconds.max() > 2 * steps.seconds.max()
    assert moved.joules.tolist() == pytest.approx((90 * moved.workers * moved.seconds).tolist(), rel=0.01)


def test_a_memory_keeps_the_predictions_of_each_question():
    memory, asked = FitMemory(), (((), ()), (("local:4",), ()), (("",), (RATE / 8,)), ((), ()))
    for steps in (build_steps(intervals=(4,)), build_steps(intervals=(4, 16))):
        for names, rates in asked:
            wanted = ExchangeRequest(names=names, rates=rates)
            known, new = (
                build_exchange_plan(PlanRequest(system=steps, memory=kept), wanted).document for kept in (memory, None)
            )
            assert known.system.predictions == new.system.predictions
