"""What runs said of a plan, first on its page, in the index and in the terminal."""

from dataclasses import replace

import pytest

from dashboards.build import main as build_index
from dashboards.experiments import load_experiment
from dashboards.page import NumberCell, Table
from dashboards.plan_confirmation import confirmation_tables, describe_plan_status
from dashboards.reports import build_page
from equipoise.planning.confirmation import find_run_of_plan
from equipoise.planning.document import PLAN_FILE, PlanDocument
from equipoise.storage.atomic import write_json
from jobs.cli.plan_report import format_confirmation, format_plan
from tests.support.demo_records import CONFIRMATION, DOCUMENT
from tests.support.sweep_folders import write_sweep_folder

SLOWER = replace(CONFIRMATION, seconds=9.5, inside=False)
MISSED = replace(CONFIRMATION, seconds=None, inside=False, outcome="max examples")
FASTER = replace(CONFIRMATION, seconds=2.0, inside=False)


OTHER = replace(CONFIRMATION, batch=48, seconds=None, inside=False, outcome="max examples")


def describe(status, *runs):
    return describe_plan_status(replace(DOCUMENT, status=status, confirmations=runs))


def test_status_of_a_plan_names_the_run_behind_it():
    assert describe("not confirmed") == "Not confirmed: no training run has been made with this plan yet."
    assert describe("confirmed", CONFIRMATION) == (
        "Confirmed: a training run took 4.74 s to the target, inside the predicted 3.52 s to 5.53 s."
    )
    assert "took 2 s to the target, faster than the predicted" in describe("confirmed", FASTER)
    assert describe("confirmed", CONFIRMATION, OTHER).startswith("Confirmed: a training run took 4.74 s")


def test_plan_that_was_corrected_by_a_run_of_its_settings_says_so():
    assert describe("not confirmed", SLOWER) == (
        "Not confirmed: a training run took 9.5 s to the target, slower than the predicted 3.52 s to 5.53 s, with 0.90"
        " times the predicted examples and 1.80 times the predicted time per step. The prediction now counts this run"
        " in; none has been made since."
    )
    without_steps = describe("not confirmed", replace(SLOWER, step=None))
    assert "slower than the predicted 3.52 s to 5.53 s. The prediction" in without_steps


def test_refuted_plans_before_it_are_named():
    text = describe("confirmed", OTHER, CONFIRMATION)
    assert text.startswith("Confirmed: ")
    assert "An earlier plan was refuted: 2 x 48 at lr 0.137, where a training run did not reach the target" in text
    text = describe("not confirmed", OTHER, replace(OTHER, workers=1))
    assert text.startswith("Not confirmed: no training run has been made") and "Earlier plans were refuted: " in text
    assert "2 x 48" in text and "1 x 48" in text


def test_other_plans_that_a_run_confirmed_are_not_called_refuted():
    other = replace(CONFIRMATION, batch=48)
    text = describe("confirmed", other, CONFIRMATION)
    assert "Another plan was confirmed: 2 x 48 at lr 0.137, where a training run took 4.74 s" in text
    assert "refuted" not in text
    text = describe("confirmed", other, OTHER, replace(other, batch=24, exchange="local:16"), CONFIRMATION)
    assert "Other plans were confirmed: 2 x 48" in text and "2 x 24 at lr 0.137, exchanging as local:16, where" in text
    assert "An earlier plan was refuted: 2 x 48" in text


def test_runs_that_differ_in_their_exchange_have_a_column_of_it():
    runs = CONFIRMATION, replace(CONFIRMATION, exchange="local:16")
    plain, (table,) = (
        confirmation_tables(replace(DOCUMENT, status="confirmed", confirmations=runs[:count])) for count in (1, 2)
    )
    assert "exchange" not in plain[0].columns and len(plain[0].rows[0]) == len(plain[0].columns)
    place = table.columns.index("exchange")
    assert [row[place] for row in table.rows] == ["exact sums", "local:16"]


def test_runs_are_told_apart_by_workers_batch_and_learning_rate():
    runs = [replace(CONFIRMATION, seed=1), CONFIRMATION, replace(CONFIRMATION, lr=0.2), OTHER]
    assert find_run_of_plan(DOCUMENT.plan, runs) is CONFIRMATION
    assert find_run_of_plan(replace(DOCUMENT.plan, lr=None), runs) is runs[2]
    assert find_run_of_plan(replace(DOCUMENT.plan, workers=4, global_batch=96), runs) is None
    assert [run.side for run in (CONFIRMATION, FASTER, SLOWER, MISSED)] == [
        "inside",
        "faster than",
        "slower than",
        None,
    ]


def test_table_has_a_row_for_each_run():
    assert confirmation_tables(DOCUMENT.with_confirmations(())) == []
    (table,) = confirmation_tables(replace(DOCUMENT, confirmations=(MISSED, CONFIRMATION)))
    assert isinstance(table, Table)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [row["plan"] for row in rows] == ["refuted", "confirmed"]
    assert [row["time"].value for row in rows] == [None, 4.74]
    assert [row["time"].text for row in rows] == ["-", "4.74 s"]
    assert rows[1]["predicted time"] == NumberCell(4.51, "4.5 s (3.5 to 5.5 s)")
    assert rows[0]["outcome"] == "max examples"


@pytest.mark.parametrize(("status", "runs"), [("confirmed", (CONFIRMATION,)), ("not confirmed", (SLOWER,))])
def test_status_stands_first_on_the_page_in_the_index_and_in_the_terminal(status, runs, tmp_path):
    folder = write_sweep_folder(tmp_path / "swept")
    document = replace(PlanDocument.read(folder / PLAN_FILE), plan=DOCUMENT.plan, status=status, confirmations=runs)
    write_json(folder / PLAN_FILE, document.to_json())
    page = build_page(load_experiment(folder), "curve")
    assert page.sections[0].paragraphs[0] == describe_plan_status(document)
    assert build_index([str(tmp_path)]) == 0
    assert f"plan, {status}" in (tmp_path / "index.html").read_text()
    assert f"\nplan, {status}: " in format_plan(document)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (CONFIRMATION, "plan confirmed: a run with 2 workers x 24 took 4.74 s to the target, inside the predicted 3.5"),
        (FASTER, "faster than the predicted"),
        (SLOWER, "plan refuted: a run with 2 workers x 24 took 9.5 s to the target, slower than the predicted"),
        (MISSED, "plan refuted: a run with 2 workers x 24 ended without reaching the target (max examples)"),
    ],
)
def test_terminal_tells_what_a_run_says_of_its_plan(run, said):
    assert said in format_confirmation(run)
