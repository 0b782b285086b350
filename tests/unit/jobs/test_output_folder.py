"""Commands do not write into the folders of other commands."""

import sys

import pytest
from PIL import Image

from equipoise.bundle.bundle import load_bundle
from equipoise.config import TrainConfig
from equipoise.planning.document import PLAN_FILE
from equipoise.runs.folder import claim_run_folder, require_writable
from jobs import check, plan, train
from jobs.adapt import require_new_folder
from jobs.cli.output_folder import find_result_kind, require_no_other_results, require_outside_bundles
from jobs.publishing.publish import PublishRequest, publish_bundle
from tests.support.bundles import publish_run, train_short_run
from tests.support.errors import raises_code
from tests.support.sweep_folders import write_plan_folder, write_statistical_csv, write_sweep_folder, write_system_csv


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of all kinds of results: a bundle, a sweep, a run, a plan, a check, links, and the tables of a plan."""
    root = tmp_path_factory.mktemp("results")
    run = train_short_run(root / "run")
    publish_run(run, root / "bundle")
    write_sweep_folder(root / "sweep")
    (root / "plan").mkdir()
    write_plan_folder(root / "plan", system=write_system_csv(root / "system.csv"))
    write_statistical_csv(root / "statistical.csv")
    (root / "check").mkdir()
    (root / "check" / "verdict.json").write_text("{}")
    (root / "link measurement").mkdir()
    (root / "link measurement" / "links.csv").touch()
    (root / "profile").mkdir()
    (root / "profile" / "profile.json").touch()
    return root


def list_files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_command(module, monkeypatch, capsys, *arguments):
    """Run a command; return its exit status and its error message."""
    monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
    try:
        status = module.main()
    except SystemExit as error:
        status = error.code
    return status, capsys.readouterr().err


@pytest.mark.parametrize("kind", ["bundle", "sweep", "run", "plan", "check", "link measurement", "profile"])
def test_kind_of_results_is_told_by_the_files(folders, kind):
    assert find_result_kind(folders / kind) == kind
    require_no_other_results(folders / kind, kind)
    with raises_code("path-in-use", f"it holds a {kind}"):
        require_no_other_results(folders / kind, "plan" if kind != "plan" else "run")


def test_link_to_itself_is_no_folder_to_write_to(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    require_no_other_results(loop, "plan")
    with raises_code("path-kind", "symbolic link"):
        require_writable(loop)


def test_new_folder_and_one_that_was_only_claimed_hold_no_results(tmp_path):
    require_no_other_results(tmp_path / "new" / "folder", "plan")
    with claim_run_folder(tmp_path / "claimed", TrainConfig(workload="digits")):
        assert find_result_kind(tmp_path / "claimed") is None


@pytest.mark.parametrize("kind", ["bundle", "sweep", "run"])
def test_plan_leaves_other_results_as_they_are(folders, kind, monkeypatch, capsys):
    before = list_files(folders / kind)
    status, message = run_command(
        plan, monkeypatch, capsys, "--system", folders / "system.csv", "--out", folders / kind
    )
    assert status == 2 and "[path-in-use]" in message
    assert list_files(folders / kind) == before


def test_plan_may_be_written_again(folders, monkeypatch, capsys):
    before = (folders / "plan" / PLAN_FILE).read_bytes()
    arguments = ("--system", folders / "system.csv", "--out", folders / "plan")
    assert run_command(plan, monkeypatch, capsys, *arguments)[0] == 0
    assert (folders / "plan" / PLAN_FILE).read_bytes() == before


def test_check_and_publish_leave_bundles_loadable(folders, monkeypatch, capsys, tmp_path):
    Image.new("L", (16, 16)).save(tmp_path / "image.png")
    (tmp_path / "link").symlink_to(folders / "bundle")
    for out in (folders / "bundle", folders / "bundle" / "deep" / "sub", tmp_path / "link" / "sub"):
        arguments = ("--bundle", folders / "bundle", "--data", tmp_path, "--out", out)
        status, message = run_command(check, monkeypatch, capsys, *arguments)
        assert status == 2 and "[path-in-use]" in message
    for out in (folders / "bundle" / "sub", tmp_path / "link" / "sub"):
        with raises_code("path-in-use", "would damage the bundle"):
            publish_bundle(PublishRequest(run=folders / "run", out=out, native=False, drift=False))
        with raises_code("path-in-use", "would damage the bundle"):
            require_new_folder(out)
        with raises_code("path-in-use"):
            require_outside_bundles(out)
    assert load_bundle(folders / "bundle").classes


def test_training_does_not_go_on_inside_a_sweep(folders, tmp_path, monkeypatch, capsys):
    config = TrainConfig(workload="digits")
    sweep = write_sweep_folder(tmp_path / "sweep")
    with claim_run_folder(sweep, config):
        pass
    before = list_files(sweep)
    status, message = run_command(train, monkeypatch, capsys, "--workload", "digits", "--out", sweep)
    assert status == 2 and "it holds a sweep" in message and "[path-in-use]" in message
    assert list_files(sweep) == before
