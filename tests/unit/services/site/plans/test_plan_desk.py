"""Plans of sweeps within limits: fits are kept, and made again when a table changes."""

import os
import shutil

import pytest

from equipoise.errors import EquipoiseError
from equipoise.planning.replanning.replanner import PlanLimits
from services.site.plans.plan_desk import PlanDesk
from tests.support.sweep_folders import write_statistical_csv, write_sweep_folder


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return write_sweep_folder(tmp_path_factory.mktemp("results") / "sweep")


def test_a_plan_without_limits_is_that_of_the_sweep(sweep):
    plan = PlanDesk(sweep.parent).build_plan("sweep", PlanLimits())
    assert plan.is_stored_plan and plan.document.plan.seconds == plan.stored.plan.seconds
    cheaper = PlanDesk(sweep.parent).build_plan("sweep", PlanLimits(deadline_seconds=1e5))
    assert cheaper.document.plan.worker_seconds < plan.document.plan.worker_seconds and not cheaper.is_stored_plan


def test_tables_that_change_are_fitted_again(sweep, tmp_path):
    folder = shutil.copytree(sweep, tmp_path / "sweep")
    desk = PlanDesk(tmp_path)
    before = desk.build_plan("sweep", PlanLimits())
    assert desk.build_plan("sweep", PlanLimits()).document == before.document
    write_statistical_csv(folder / "statistical.csv", seeds=5)
    os.utime(folder / "statistical.csv", ns=(1, 1))
    assert desk.build_plan("sweep", PlanLimits()).document != before.document


def test_folders_without_measurements_are_refused(tmp_path):
    (tmp_path / "plan").mkdir()
    with pytest.raises(EquipoiseError, match=r"no system.csv and no statistical.csv") as refused:
        PlanDesk(tmp_path).build_plan("plan", PlanLimits())
    assert refused.value.code == "plan-missing"
    with pytest.raises(EquipoiseError, match="cannot find 'missing'"):
        PlanDesk(tmp_path).build_plan("missing", PlanLimits())
