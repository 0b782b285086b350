"""The command jobs.plan on step times of two devices: prices, budgets, and what it prints."""

import json
import re
import sys

import pytest

from jobs.plan import main, parse_prices
from tests.support.device_tables import build_device_steps, build_shared_runs
from tests.support.errors import raises_code


@pytest.fixture
def run_plan(monkeypatch, tmp_path, capsys):
    """Return a function that runs the command on both tables and returns its exit status, its output and plan.json."""
    build_device_steps().to_csv(tmp_path / "system.csv", index=False)
    build_shared_runs().to_csv(tmp_path / "statistical.csv", index=False)

    def run_main(*arguments):
        tables = ["--system", tmp_path / "system.csv", "--statistical", tmp_path / "statistical.csv"]
        monkeypatch.setattr(sys, "argv", ["plan", *map(str, [*tables, "--out", tmp_path / "out", *arguments])])
        try:
            status = main()
        except SystemExit as error:
            status = error.code
        path = tmp_path / "out" / "plan.json"
        return status, capsys.readouterr(), json.loads(path.read_text()) if path.exists() else None

    return run_main


def test_prices_by_device_are_printed_with_the_verdict(run_plan, tmp_path):
    arguments = ("--price", "a10=1.2usd", "h100=4usd", "--predict-at", "1x2", "--predict-batch", 96)
    status, output, document = run_plan(*arguments)
    assert status == 0 and document["plan"]["device"] == "h100"
    lines = output.out.splitlines()
    assert lines[0].endswith("worker-seconds     dollars")
    rows = lines[1 : 1 + len(document["front"])]
    assert {line.rpartition(", on ")[2] for line in rows} == {"a10", "h100"}
    assert [line for line in lines if line.startswith("plan, not confirmed:") and "on 1 node, on h100: " in line]
    assert "h100: 2 times sooner, 1.7 times the cost of a10" in lines
    assert [line.partition(":")[0] for line in lines if line.startswith("at 1x2")] == [
        "at 1x2, on a10",
        "at 1x2, on h100",
    ]
    [at_batch] = [line for line in lines if line.startswith("at a global batch of 96: ")]
    assert re.search(r"examples \(.*\); [\d.,]+ s at best, on a10; [\d.,]+ s at best, on h100$", at_batch)
    assert "1.7 times the cost of a10" in (tmp_path / "out" / "curve.html").read_text()


def test_budget_needs_the_price_of_each_device(run_plan):
    status, output, document = run_plan("--budget", "1000usd", "--price", "a10=1.2usd")
    assert status == 0 and document["plan"]["device"] == "a10"
    assert (
        "note: h100: left out, because --price says nothing of it and --budget is given: add h100=1.2usd" in output.out
    )


@pytest.mark.parametrize(
    ("prices", "code", "message"),
    [
        (["h10=3usd"], "option-choice", "its column device has a10, h100"),
        (["h100=3usd", "h100=4usd"], "option-conflict", "two amounts for 'h100'"),
        (["3usd", "4usd"], "option-conflict", "two amounts without the name of a device"),
        (["h100="], "option-format", "an amount such as 40usd"),
    ],
)
def test_bad_prices_are_refused(run_plan, prices, code, message):
    status, output, document = run_plan("--price", *prices)
    assert (status, document) == (2, None)
    assert message in output.err and output.err.endswith(f"[{code}]\n")


def test_price_without_a_name_is_that_of_all_others():
    prices = parse_prices(["a=b=1.5usd", "$3"])
    assert [prices.find_price(device) for device in ("a=b", "h100", "")] == [1.5, 3.0, 3.0]
    for amount in ("-1usd", "0", "1" + 12 * "0" + "1", "0." + 12 * "0" + "1"):
        with raises_code("option-format"):
            parse_prices([f"h100={amount}"])
