"""jobs.plan from tables to plan.json, as a user calls it."""

import json
import re
import sys

import pytest

from jobs.plan import main

ROWS = [(1, n, b, 0.01 + 0.001 * b + 0.02 * (n - 1) / n) for n in (1, 2, 4) for b in (16, 32, 64, 128)]
RUNS = [(b, 0.1, s, 20_000 * (1 + b / 300) * (1 + 0.02 * s), 1) for b in (64, 128, 256, 512, 1024) for s in (0, 1, 2)]


@pytest.fixture
def tables(tmp_path):
    rows, runs = tmp_path / "system.csv", tmp_path / "statistical.csv"
    rows.write_text("nodes,workers,batch,seconds\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS))
    runs.write_text("global_batch,lr,seed,examples,reached\n" + "".join(",".join(map(str, run)) + "\n" for run in RUNS))
    return ["--system", str(rows), "--statistical", str(runs), "--out", str(tmp_path / "out")]


@pytest.fixture
def call(monkeypatch, tmp_path, capsys):
    def called(*words):
        monkeypatch.setattr(sys, "argv", ["plan", *map(str, words)])
        try:
            status = main()
        except SystemExit as ended:
            status = ended.code
        path = tmp_path / "out" / "plan.json"
        return status, capsys.readouterr(), json.loads(path.read_text()) if path.exists() else None

    return called


def test_two_tables_make_a_plan_with_all_its_parts(call, tables):
    status, said, facts = call(*tables, "--predict-at", "1x8", "--predict-batch", 96, 2048)
    assert status == 0
    assert facts["schema"] == 1
    chosen = facts["plan"]
    assert chosen["global_batch"] == chosen["workers"] * chosen["batch"]
    assert chosen["seconds"]["low"] <= chosen["seconds"]["value"] <= chosen["seconds"]["high"]
    assert chosen["worker_seconds"] == pytest.approx(chosen["seconds"]["value"] * chosen["workers"])
    assert chosen["binding"] in ("compute", "exchange", "noise")
    assert facts["runner_up"]["seconds"]["value"] >= chosen["seconds"]["value"]
    points = {(p["nodes"], p["workers"], p["batch"]): p for p in facts["system"]["predictions"]}
    assert set(points) == {row[:3] for row in ROWS} | {(1, 8, b) for b in (16, 32, 64, 128)}
    assert points[1, 2, 64]["measured"] and not points[1, 8, 64]["measured"]
    assert points[1, 8, 64]["seconds"] == pytest.approx(0.01 + 0.064 + 0.02 * 7 / 8, rel=0.05)
    assert [p["global_batch"] for p in facts["statistical"]["predictions"]] == [64, 96, 128, 256, 512, 1024, 2048]
    assert facts["statistical"]["critical_batch"]["value"] == pytest.approx(300, rel=0.1)
    assert f"{chosen['workers']} workers x {chosen['batch']}" in said.out


@pytest.mark.parametrize(("keep", "gone"), [("system", "statistical"), ("statistical", "system")])
def test_one_table_fills_its_part_alone(call, tables, keep, gone):
    at = tables.index(f"--{gone}")
    status, _, facts = call(*tables[:at], *tables[at + 2 :])
    assert status == 0
    assert facts["plan"] is None and facts["runner_up"] is None and facts["front"] == []
    assert facts[keep]["identifiable"] and facts[gone] is None
    assert f"no --{gone} was given" in facts["warnings"][0]


def test_what_was_asked_for_is_answered_on_the_screen_too(call, tables):
    _, said, facts = call(*tables, "--predict-at", "1x4", "2x4", "1x64", "--predict-batch", 300)
    near, _, far = (line for line in said.out.splitlines() if line.startswith("at ") and "x" in line.split()[1])
    assert re.match(r"at 1x4: a step takes [\d.]+ ms \([\d.]+ to [\d.]+\) at 16, ", near) and "timed" not in near
    assert far.endswith("; no more than 4 workers were timed")
    assert "at 2x4: needs rows of several workers on several nodes" in said.out
    [predicted] = [row for row in facts["statistical"]["predictions"] if row["global_batch"] == 300]
    assert f"at a global batch of 300: {predicted['examples']:,.0f} examples (" in said.out


def test_a_place_that_nothing_tells_of_is_left_open(call, tables):
    _, _, facts = call(*tables, "--predict-at", "2x4")
    assert not facts["system"]["identifiable"]
    assert facts["system"]["missing"] == ["rows of several workers on several nodes"]
    assert all(p["seconds"] is None for p in facts["system"]["predictions"] if p["nodes"] == 2)


def test_deadline_and_budget(call, tables):
    _, _, free = call(*tables)
    _, _, timed = call(*tables, "--deadline", f"{free['plan']['seconds']['value'] * 2}s")
    assert timed["plan"]["worker_seconds"] <= free["plan"]["worker_seconds"]
    cost = free["front"][-1]["worker_seconds"] * 1.01
    _, _, paid = call(*tables, "--budget", f"{cost / 3600 * 3.06:.6f}usd", "--price", 3.06)
    assert paid["plan"]["worker_seconds"] <= cost
    _, said, none = call(*tables, "--deadline", "1s")
    assert none["plan"] is None and "no plan is within the given limits" in said.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--predict-at", "4"], "nodes x workers such as 4x16"),
        (["--predict-at", "4x2"], "nodes x workers such as 4x16"),
        (["--predict-at", "1x" + "1" * 400], "nodes x workers such as 4x16"),
        (["--predict-batch", "1" + "0" * 400], "global batches must be a whole number from 1 to 1e12"),
        (["--deadline", "."], "a time such as 90s"),
        (["--deadline", "soon"], "a time such as 90s"),
        (["--deadline", "0h"], "a time such as 90s"),
        (["--budget", "3usd"], "--budget and --price belong together"),
        (["--budget", "0usd", "--price", "3"], "--budget must be an amount such as 40usd, got '0usd'"),
        (["--budget", "3usd", "--price", "nan"], "--price must be an amount such as 40usd, got 'nan'"),
        (["--predict-batch", "0"], "global batches must be a whole number from 1 to 1e12, got 0"),
    ],
)
def test_what_cannot_be_asked_is_said(call, tables, words, sentence):
    status, said, facts = call(*tables, *words)
    assert status == 2
    assert sentence in " ".join(said.err.split())
    assert facts is None


def test_a_bad_table_is_one_sentence_and_writes_nothing(call, tables):
    path = tables[1]
    with open(path, "a") as file:  # noqa: PTH123
        file.write("1,2,64,-1\n")
    status, said, facts = call(*tables)
    assert status == 2
    assert (
        said.err == f"error: {path}, row 14, column seconds: must be a number of seconds from 1e-7 to 1e4, got '-1'\n"
    )
    assert facts is None


def test_no_table_at_all(call, tmp_path):
    status, said, _ = call("--out", tmp_path)
    assert status == 2
    assert "give --system, --statistical or both" in said.err
