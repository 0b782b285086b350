"""Files of a checkpoint, written and read by the workers of a real process group."""

from dataclasses import replace

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from equipoise.config import TrainConfig
from equipoise.parameter_store.arrivals import ARRIVALS_FILE
from equipoise.training.loop import Training
from jobs.ray_train.checkpoint_files import (
    LAPS_FILE,
    TRAINING_STATE_FILE,
    error_file_name,
    restore_checkpoint,
    write_checkpoint,
)
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo

EXACT = TrainConfig(workload="digits", workers=3, batch_size=8, target=2.0, max_examples=240, eval_every=120)
CONFIGS = {name: replace(EXACT, compression=name) for name in ("int8", "powersgd:2")}


def train_and_write(configs):
    """Write a checkpoint of each run after its first lap, and return the weights at its end."""
    results = []
    for folder, config in configs.items():
        training = Training(config)
        laps = training.laps()
        next(laps)
        assert write_checkpoint(training, folder) is (training.rank == 0 or config.compression != "none")
        for _ in laps:
            pass
        results.append(training.model.state_dict())
    return results


def restore_and_train(configs):
    results = []
    for folder, config in configs.items():
        training = Training(config)
        restore_checkpoint(training, folder)
        assert training.finished_laps[-1].seen == 120
        for _ in training.laps():
            pass
        results.append(training.model.state_dict())
    return results


def are_equal(first, second):
    return all(torch.equal(first[name], second[name]) for name in second)


def test_workers_find_what_they_left_out_in_files_of_their_own(tmp_path):
    configs = {tmp_path / name: config for name, config in CONFIGS.items()} | {tmp_path / "exact": EXACT}
    for folder in configs:
        folder.mkdir()
    expected = run_with_gloo(2, tmp_path, train_and_write, configs)[0]
    error_files = [error_file_name(rank, 2) for rank in range(2)]
    assert sorted(path.name for path in (tmp_path / "exact").iterdir()) == [LAPS_FILE, TRAINING_STATE_FILE]
    for name in CONFIGS:
        folder = tmp_path / name
        assert sorted(path.name for path in folder.iterdir()) == [*error_files, LAPS_FILE, TRAINING_STATE_FILE]
        assert not any(name.startswith("error.") for name in load_file(folder / TRAINING_STATE_FILE))
        first, second = (set(load_file(folder / file)) for file in error_files)
        assert first and second and not first & second
    for result in run_with_gloo(2, tmp_path, restore_and_train, configs):
        assert all(are_equal(*pair) for pair in zip(result, expected, strict=True))
    encoded = tmp_path / "int8"
    (on_another_number,) = restore_and_train({encoded: configs[encoded]})
    assert are_equal(on_another_number, expected[0])


def test_worker_reads_no_file_of_others_where_their_number_is_the_same(tmp_path):
    config = replace(EXACT, workers=2, compression="int8")
    training = Training(config)
    next(training.laps())
    write_checkpoint(training, tmp_path)
    (tmp_path / error_file_name(1, 2)).write_text("of another worker")
    (tmp_path / error_file_name(0, 1)).rename(tmp_path / error_file_name(0, 2))
    resumed = Training(config)
    resumed.workers = 2  # as it is in a process group
    restore_checkpoint(resumed, tmp_path)
    with safe_open(tmp_path / error_file_name(0, 2), "pt") as stored:
        errors = resumed.own_state_dict()
        assert set(stored.keys()) == set(errors)
        assert all(torch.equal(stored.get_tensor(name), error) for name, error in errors.items())


def test_checkpoint_of_asynchronous_workers_has_their_log_up_to_there(tmp_path):
    configs = {tmp_path: replace(EXACT, sync="async:2")}
    assert [*map(len, run_with_gloo(3, tmp_path, write_and_list_log, configs))] == [2, 0, 0]
    log = (tmp_path / ARRIVALS_FILE).read_text()
    assert log.count("\n") == 1
    alone = Training(configs[tmp_path])  # with workers that are simulated
    restore_checkpoint(alone, tmp_path)
    for _ in alone.laps():
        pass
    assert alone.steps.arrival_lines[0] == log and len(alone.steps.arrival_lines) == 2
    (tmp_path / ARRIVALS_FILE).write_text(log * 2)
    with raises_code("run-damaged", ARRIVALS_FILE, "line 2 is damaged"):
        restore_checkpoint(alone, tmp_path)
    (tmp_path / ARRIVALS_FILE).write_text("")
    with raises_code("run-damaged", ARRIVALS_FILE, "its 0 laps and the 1 lap of the run"):
        restore_checkpoint(alone, tmp_path)


def write_and_list_log(configs):
    """Write a checkpoint of a run after its first lap, and return the log at its end."""
    [(folder, config)] = configs.items()
    training = Training(config)
    laps = training.laps()
    next(laps)
    write_checkpoint(training, folder)
    for _ in laps:
        pass
    return training.steps.arrival_lines
