"""The command jobs.plan, from tables to plan.json."""

import json
import re
import sys

import pytest

from equipoise.errors import EquipoiseError
from jobs.plan import main, parse_bit_rate
from tests.support.memory_world import MemoryWorld

SYSTEM_ROWS = [(1, n, b, 0.01 + 0.001 * b + 0.02 * (n - 1) / n) for n in (1, 2, 4) for b in (16, 32, 64, 128)]
STATISTICAL_ROWS = [
    (b, 0.1, s, 20_000 * (1 + b / 300) * (1 + 0.02 * s), 1) for b in (64, 128, 256, 512, 1024) for s in (0, 1, 2)
]


@pytest.fixture
def table_arguments(tmp_path):
    """Write both tables; return the arguments that name them and the output folder."""
    system, statistical = tmp_path / "system.csv", tmp_path / "statistical.csv"
    system.write_text("nodes,workers,batch,seconds\n" + "".join(",".join(map(str, row)) + "\n" for row in SYSTEM_ROWS))
    statistical.write_text(
        "global_batch,lr,seed,examples,reached\n" + "".join(",".join(map(str, row)) + "\n" for row in STATISTICAL_ROWS)
    )
    return ["--system", str(system), "--statistical", str(statistical), "--out", str(tmp_path / "out")]


@pytest.fixture
def run_plan(monkeypatch, tmp_path, capsys):
    """Return a function that runs the command and returns its exit status, its output and plan.json."""

    def run_main(*arguments):
        monkeypatch.setattr(sys, "argv", ["plan", *map(str, arguments)])
        try:
            status = main()
        except SystemExit as error:
            status = error.code
        path = tmp_path / "out" / "plan.json"
        return status, capsys.readouterr(), json.loads(path.read_text()) if path.exists() else None

    return run_main


def test_two_tables_give_a_complete_plan(run_plan, table_arguments):
    status, output, document = run_plan(*table_arguments, "--predict-at", "1x8", "--predict-batch", 96, 2048)
    assert status == 0
    assert document["schema"] == 1
    plan = document["plan"]
    assert plan["global_batch"] == plan["workers"] * plan["batch"]
    assert plan["seconds"]["low"] <= plan["seconds"]["value"] <= plan["seconds"]["high"]
    assert plan["worker_seconds"] == pytest.approx(plan["seconds"]["value"] * plan["workers"])
    assert plan["binding"] in ("compute", "exchange", "noise")
    assert document["runner_up"]["seconds"]["value"] >= plan["seconds"]["value"]
    points = {(p["nodes"], p["workers"], p["batch"]): p for p in document["system"]["predictions"]}
    assert set(points) == {row[:3] for row in SYSTEM_ROWS} | {(1, 8, b) for b in (16, 32, 64, 128)}
    assert points[1, 2, 64]["measured"] and not points[1, 8, 64]["measured"]
    assert points[1, 8, 64]["seconds"] == pytest.approx(0.01 + 0.064 + 0.02 * 7 / 8, rel=0.05)
    predicted_batches = {p["global_batch"] for p in document["statistical"]["predictions"]}
    assert predicted_batches >= {64, 96, 128, 256, 512, 1024, 2048}
    assert document["statistical"]["critical_batch"]["value"] == pytest.approx(300, rel=0.1)
    assert f"{plan['workers']} workers x {plan['batch']}" in output.out


@pytest.mark.parametrize(("given_table", "missing_table"), [("system", "statistical"), ("statistical", "system")])
def test_one_table_fills_only_its_part(run_plan, table_arguments, given_table, missing_table):
    index = table_arguments.index(f"--{missing_table}")
    status, _, document = run_plan(*table_arguments[:index], *table_arguments[index + 2 :])
    assert status == 0
    assert document["plan"] is None and document["runner_up"] is None and document["front"] == []
    assert document[given_table]["identifiable"] and document[missing_table] is None
    assert f"no --{missing_table} was given" in document["warnings"][0]


def test_requested_predictions_are_printed(run_plan, table_arguments):
    _, output, document = run_plan(*table_arguments, "--predict-at", "1x4", "2x4", "1x64", "--predict-batch", 300)
    measured, _, extrapolated = (
        line for line in output.out.splitlines() if line.startswith("at ") and "x" in line.split()[1]
    )
    assert (
        re.match(r"at 1x4: a step takes [\d.]+ ms \([\d.]+ to [\d.]+\) at 16, ", measured) and "timed" not in measured
    )
    assert extrapolated.endswith("; no more than 4 workers were timed")
    assert "at 2x4: needs rows of several workers on several nodes" in output.out
    [prediction] = [row for row in document["statistical"]["predictions"] if row["global_batch"] == 300]
    assert f"at a global batch of 300: {prediction['examples']:,.0f} examples (" in output.out


def test_cluster_shape_without_measurements_has_no_prediction(run_plan, table_arguments):
    _, _, document = run_plan(*table_arguments, "--predict-at", "2x4")
    assert not document["system"]["identifiable"]
    assert document["system"]["missing"] == ["rows of several workers on several nodes"]
    assert all(p["seconds"] is None for p in document["system"]["predictions"] if p["nodes"] == 2)


def test_plan_keeps_to_deadline_and_budget(run_plan, table_arguments):
    _, _, unlimited = run_plan(*table_arguments)
    _, _, with_deadline = run_plan(*table_arguments, "--deadline", f"{unlimited['plan']['seconds']['value'] * 2}s")
    assert with_deadline["plan"]["worker_seconds"] <= unlimited["plan"]["worker_seconds"]
    cost = unlimited["front"][-1]["worker_seconds"] * 1.01
    _, _, with_budget = run_plan(*table_arguments, "--budget", f"{cost / 3600 * 3.06:.6f}usd", "--price", 3.06)
    assert with_budget["plan"]["worker_seconds"] <= cost
    _, output, infeasible = run_plan(*table_arguments, "--deadline", "1s")
    assert infeasible["plan"] is None and "no plan is within the given limits" in output.out


MEMORY_WORLD = MemoryWorld(names=("", "full"))


@pytest.mark.parametrize(("limit", "sharding"), [("40GB", "none"), ("6.2GB", "full")])
def test_model_is_divided_only_where_a_whole_one_does_not_fit(run_plan, tmp_path, limit, sharding):
    system, statistical = tmp_path / "system.csv", tmp_path / "statistical.csv"
    MEMORY_WORLD.measure_steps().to_csv(system, index=False)
    MEMORY_WORLD.measure_runs().to_csv(statistical, index=False)
    arguments = ["--system", system, "--statistical", statistical, "--out", tmp_path / "out"]
    status, output, document = run_plan(*arguments, "--memory", limit)
    plan, verdicts = document["plan"], {verdict["exchange"]: verdict for verdict in document["exchanges"]}
    assert status == 0 and plan["sharding"] == sharding and plan["exchange"] == sharding.replace("none", "")
    if sharding == "none":
        assert verdicts["full"]["verdict"] == "slower" and set(verdicts) == {"full"}
        return
    setting = (plan["exchange"], plan["workers"], plan["batch"])
    assert setting == MEMORY_WORLD.find_best(6.2e9)
    assert verdicts["full"]["verdict"] == "use" and verdicts[""]["verdict"] == "does not fit"
    assert verdicts["full"]["peak_bytes"] == pytest.approx(MEMORY_WORLD.peak_bytes(*setting), rel=0.02)
    assert "the whole model needs 16.1 GB of 6.2 GB a worker" in plan["why"] and "exchanging by full" in output.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "16"], "--memory must be an amount of memory with its unit, such as 16GB"),
        (["--predict-at", "4"], "nodes x workers such as 4x16"),
        (["--predict-at", "4x2"], "nodes x workers such as 4x16"),
        (["--predict-at", "1x" + "1" * 400], "nodes x workers such as 4x16"),
        (["--predict-batch", "1" + "0" * 400], "--predict-batch must be a whole number from 1 to 1e12"),
        (["--deadline", "."], "a time such as 90s"),
        (["--deadline", "soon"], "a time such as 90s"),
        (["--deadline", "0h"], "a time such as 90s"),
        (["--watts", "0"], "--watts must be from 0.001 to 1,000,000, got 0"),
        (["--budget", "3usd"], "--budget and --price belong together"),
        (["--budget", "0usd", "--price", "3"], "--budget must be an amount such as 40usd, got '0usd'"),
        (["--budget", "3usd", "--price", "nan"], "--price must be an amount such as 40usd, got 'nan'"),
        (["--predict-batch", "0"], "--predict-batch must be a whole number from 1 to 1e12, got 0"),
    ],
)
def test_invalid_options_are_refused(run_plan, table_arguments, arguments, message):
    status, output, document = run_plan(*table_arguments, *arguments)
    assert status == 2
    assert message in " ".join(output.err.split())
    assert document is None


@pytest.mark.parametrize("arguments", [("--memory", "16GB"), ("--watts", "250")])
def test_limits_of_workers_need_step_times(run_plan, table_arguments, arguments):
    status, output, document = run_plan(*table_arguments[2:], *arguments)
    assert status == 2 and document is None
    assert f"cannot use {arguments[0]} without --system" in output.err


def test_invalid_table_is_refused_in_one_sentence_and_nothing_is_written(run_plan, table_arguments):
    path = table_arguments[1]
    with open(path, "a") as file:  # noqa: PTH123
        file.write("1,2,64,-1\n")
    status, output, document = run_plan(*table_arguments)
    assert status == 2
    assert output.err.startswith(f"error: {path}, row 14, column seconds: ") and output.err.count("\n") == 1
    assert output.err.endswith("[table-invalid]\n")
    assert document is None


def test_at_least_one_table_is_required(run_plan, tmp_path):
    status, output, _ = run_plan("--out", tmp_path)
    assert status == 2
    assert "give --system, --statistical or both" in output.err


GRID_CSV = "".join(
    f"4,4,8,{0.02 + (0.1 + 8e8 / rate) / interval},diloco:{interval},{rate:g}\n"
    for interval in (1, 32)
    for rate in (2e8, 5e9)
)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("200Mbit/s", 2e8),
        ("1Gbit", 1e9),
        ("2.5 Gb/s", 2.5e9),
        ("100Mbps", 1e8),
        ("64kbit/s", 6.4e4),
        ("1E9", 1e9),
        ("7", 7),
    ],
)
def test_rates_have_the_units_of_networks(text, rate):
    assert parse_bit_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "fast", "1GB", "200MB/s", "1mbit", "0Mbit/s", "1e400", "1e9Tbit", "-1", "nan"])
def test_other_rates_are_refused(text):
    with pytest.raises(EquipoiseError, match="must be bits per second such as 200Mbit/s or 1e9, got"):
        parse_bit_rate(text)


def test_exchanges_are_predicted_at_other_rates(run_plan, tmp_path):
    path = tmp_path / "grid.csv"
    path.write_text("nodes,workers,batch,seconds,exchange,bits_per_second\n" + GRID_CSV)
    arguments = ["--system", path, "--out", tmp_path / "out", "--predict-exchange", "local:8", "bf16"]
    status, output, document = run_plan(*arguments, "--predict-rate", "1Gbit/s", "5e7")
    assert status == 0
    rows = {(row["exchange"], row["bits_per_second"]): row for row in document["system"]["predictions"]}
    for rate in (1e9, 5e7):
        assert rows["local:8", rate]["seconds"] == pytest.approx(0.02 + (0.1 + 8e8 / rate) / 8)
        assert not rows["local:8", rate]["measured"]
    assert "local:8 at 1,000 Mbit/s" in output.out and "left out: bf16 on 4 workers" in output.out
    assert any(gap.startswith("bf16") for gap in document["system"]["missing"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--predict-rate", "0"), "--predict-rate must be"),
        (("--predict-exchange", "local:0"), "local"),
        (("--predict-rate", "nan"), "--predict-rate must be"),
        (("--predict-rate", "1e9", "fast"), "must be bits per second such as 200Mbit/s or 1e9, got 'fast'"),
        (("--predict-batch", "1.5"), "--predict-batch must be whole numbers, got '1.5'"),
        (("--predict-exchange", "Ring"), "cannot predict the exchange 'Ring': no row of --system has it"),
        (("--algorithms", "missing.csv"), "missing.csv"),
    ],
)
def test_impossible_exchanges_are_refused(run_plan, table_arguments, arguments, code):
    status, output, document = run_plan(*table_arguments, *arguments)
    assert status == 2 and document is None and code in output.err
