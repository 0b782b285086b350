"""Results folders with runs, a sweep and broken records, for tests of the site's experiments."""

from dataclasses import replace

from equipoise.storage.atomic import write_json
from tests.support.sweep_folders import write_sweep_folder
from tests.unit.dashboards.test_training_run import record


def write_run(folder, **options):
    """Write the record of a run with some of its options replaced, and return its folder."""
    status = options.pop("status", "reached_target")
    run = replace(record(), config=replace(record().config, **options), status=status)
    write_json(folder / "record.json", run.to_json())
    return folder


def write_trials(folder, count, start=0):
    """Write records of trials into the folder of a sweep."""
    for seed in range(start, start + count):
        run = replace(record(), config=replace(record().config, seed=seed))
        write_json(folder / "trials" / f"batch-32-lr-0.05-seed-{seed}.json", run.to_json())


def write_results(root):
    """Write two runs, a sweep with three trials, a run in progress and two broken files; return the root."""
    write_run(root / "first", lr=0.05, seed=1)
    write_run(root / "deep" / "second", lr=0.1, seed=2, status="max_examples")
    write_trials(write_sweep_folder(root / "sweep"), 3)
    (root / "started").mkdir()
    (root / "started" / "trial.json").write_text('{"workload": "digits"}')
    (root / "broken").mkdir()
    (root / "broken" / "record.json").write_text('{"schema": 2')
    (root / "odd").mkdir()
    (root / "odd" / "plan.json").write_text("[1, 2]")
    return root
