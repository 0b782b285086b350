"""Plans for several targets of the same runs, from curves that are known."""

from dataclasses import asdict, replace

import pytest

from equipoise.planning.build_document import build_plan_document, read_request
from equipoise.planning.document import PlanDocument
from equipoise.planning.targets.target_plans import find_hardest_target
from equipoise.storage.atomic import write_json
from tests.support.errors import raises_code
from tests.support.several_targets import CURVES, build_targets_request
from tests.support.sweep_folders import SETUP


@pytest.fixture(scope="module")
def request_of_targets():
    return build_targets_request()


@pytest.fixture(scope="module")
def document(request_of_targets):
    return build_plan_document(request_of_targets)


def test_each_target_has_the_critical_batch_of_its_curve(document):
    assert [entry.target for entry in document.targets] == [2.4, 2.2, 2.0]
    for entry in document.targets:
        fewest, critical = CURVES[entry.target]
        assert entry.critical_batch.value == pytest.approx(critical, rel=0.05)
        assert entry.critical_batch.low <= critical <= entry.critical_batch.high
        assert entry.min_examples.value == pytest.approx(fewest, rel=0.05) and entry.reached == 12


def test_last_target_has_the_plan_of_the_document(document, request_of_targets):
    assert document.targets[-1].plan == document.plan
    assert document.targets[-1].critical_batch == document.statistical.critical_batch
    alone = build_plan_document(replace(request_of_targets, targets=None))
    assert replace(document, targets=(), schedule=None) == alone


def test_easier_target_has_the_plan_of_a_sweep_to_it_alone(document, request_of_targets):
    crossings = request_of_targets.targets
    runs = crossings[crossings.target == 2.2].drop(columns="target").reset_index(drop=True)
    alone = build_plan_document(replace(request_of_targets, statistical=runs, targets=None))
    assert document.targets[1].plan == alone.plan


def test_schedule_grows_its_batch_and_is_no_slower_than_the_plan(document):
    schedule = document.schedule
    batches = [stage.global_batch for stage in schedule.stages]
    assert [stage.until for stage in schedule.stages] == [2.4, 2.2, 2.0]
    assert batches == sorted(batches) and batches[0] < batches[-1]
    assert schedule.constant_seconds == pytest.approx(document.plan.seconds.value)
    assert schedule.seconds < schedule.constant_seconds and schedule.faster_share > 0.5


def test_document_is_the_same_after_writing_and_reading(document, tmp_path):
    write_json(tmp_path / "plan.json", document.to_json())
    assert PlanDocument.read(tmp_path / "plan.json") == document


def test_document_of_an_earlier_version_has_no_targets(document):
    contents = document.to_json()
    del contents["targets"], contents["schedule"]
    setup = asdict(SETUP)
    old_names = {"training_images": setup.pop("training_examples"), "image_size": setup.pop("input_shape")}
    earlier = PlanDocument.from_json(contents | {"setup": setup | old_names})
    assert earlier.targets == () and earlier.schedule is None and earlier.plan == document.plan
    assert earlier.setup == SETUP


def test_target_that_no_run_reached_has_no_plan_and_no_schedule(request_of_targets):
    hardest = request_of_targets.statistical.assign(reached=0)
    crossings = request_of_targets.targets
    crossings = crossings.assign(reached=(crossings.target > 2.0).astype(int))
    document = build_plan_document(replace(request_of_targets, statistical=hardest, targets=crossings))
    assert document.plan is None and document.schedule is None
    assert [entry.plan is None for entry in document.targets] == [False, False, True]
    assert [entry.reached for entry in document.targets] == [12, 12, 0]


def test_table_of_targets_is_read_in_its_order(request_of_targets, tmp_path):
    request_of_targets.targets.to_csv(tmp_path / "targets.csv", index=False)
    table = read_request(targets=tmp_path / "targets.csv").targets
    assert table.target.unique().tolist() == [2.4, 2.2, 2.0] and find_hardest_target(table) == 2.0
    assert table.examples.tolist() == pytest.approx(request_of_targets.targets.examples.tolist())


def test_table_with_an_infinite_target_is_refused(request_of_targets, tmp_path):
    request_of_targets.targets.assign(target="inf").to_csv(tmp_path / "targets.csv", index=False)
    with raises_code("table-invalid", "targets.csv", "column target"):
        read_request(targets=tmp_path / "targets.csv")
