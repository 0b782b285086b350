"""jobs.sweep --recipes on a real cluster: paired trials, the comparison, and a plan with the options of a recipe."""

import json
import sys

import pandas as pd
import pytest

from equipoise.planning.document import PlanDocument
from equipoise.planning.recipe_choice.recipe_report import RecipeReport


@pytest.mark.slow
@pytest.mark.thorough
def test_sweep_compares_recipes_and_plans_with_the_fastest(cluster, tmp_path):
    out = tmp_path / "sweep"
    result = cluster.run(
        *(sys.executable, "-m", "jobs.sweep", "--workload", "digits", "--workers", "1", "--batch-size", "16:64"),
        *("--target", "0.5", "--budget-seconds", "40", "--recipes", "plain,lars:0.05", "lamb", "--out", str(out)),
    )
    assert result.returncode in (0, 1), result.stdout + result.stderr
    report = RecipeReport.from_json(json.loads((out / "recipes.json").read_text()))
    assert [each.recipe for each in report.recipes] == ["plain", "lars:0.05", "lamb"]
    assert f"the plan is made with {report.chosen}" in result.stdout
    runs = pd.read_csv(out / "recipes.csv")
    assert set(runs.recipe) <= {"plain", "lars:0.05", "lamb"} and not runs.duplicated(list(runs.columns[:4])).any()
    trials = {"plain": "", "lars:0.05": "recipes/lars-0.05/", "lamb": "recipes/lamb/"}
    for recipe, folder in trials.items():
        records = [json.loads(path.read_text()) for path in (out / "trials").glob(f"{folder}*.json")]
        optimizers = {record["config"]["optimizer"] for record in records}
        assert optimizers <= {{"plain": "sgd", "lars:0.05": "lars", "lamb": "lamb"}[recipe]}
    document = PlanDocument.read(out / "plan.json")
    assert document.setup.recipe == report.chosen
    assert document.setup.options["optimizer"] == {"plain": "sgd", "lars:0.05": "lars"}.get(report.chosen, "lamb")
    own = runs[runs.recipe == report.chosen]
    assert len(pd.read_csv(out / "statistical.csv")) == len(own)
    assert document.confirmations and 'id="recipes"' in (out / "curve.html").read_text()
