"""A sweep goes on with the data and model that its trials were made with, and with no others."""

import json
from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware_facts import HardwareFacts
from jobs.cli.sweep_setup import (
    SETUP_FILE,
    forget_empty_sweep,
    load_workload_with_target,
    read_sweep_setup,
    require_same_sweep_setup,
    write_sweep_setup,
)
from tests.support.errors import raises_code
from tests.support.sweep_folders import SETUP, write_sweep_folder


def test_sweep_that_has_not_begun_goes_on_with_anything(tmp_path):
    assert read_sweep_setup(tmp_path) is None
    require_same_sweep_setup(tmp_path, SETUP)


def test_sweep_goes_on_with_the_same_data_on_another_machine_and_to_another_target(tmp_path):
    write_sweep_setup(tmp_path, SETUP)
    assert read_sweep_setup(tmp_path) == SETUP
    require_same_sweep_setup(tmp_path, replace(SETUP, machine=HardwareFacts(processor="other"), target=0.5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": "0" * 12}, ["data with digest", "0" * 12]),
        ({"training_examples": 7}, ["number of training examples", "7"]),
        ({"model": "ResNet of 5 parameters"}, ["model"]),
    ],
)
def test_other_data_or_model_is_refused_by_name(tmp_path, change, words):
    write_sweep_setup(tmp_path, SETUP)
    with raises_code("run-mismatch", tmp_path, "another --out", *words):
        require_same_sweep_setup(tmp_path, replace(SETUP, **change))


def test_setup_of_an_earlier_version_is_that_of_its_plan(tmp_path):
    write_sweep_folder(tmp_path / "sweep")
    assert not (tmp_path / "sweep" / SETUP_FILE).exists()
    assert read_sweep_setup(tmp_path / "sweep") == SETUP
    with raises_code("run-mismatch"):
        require_same_sweep_setup(tmp_path / "sweep", replace(SETUP, data="0" * 12))
    (tmp_path / "sweep" / "plan.json").write_text("{")
    assert read_sweep_setup(tmp_path / "sweep") is None


def test_setup_file_of_an_earlier_version_is_read(tmp_path):
    write_sweep_setup(tmp_path, SETUP)
    contents = json.loads((tmp_path / SETUP_FILE).read_text())
    contents |= {"training_images": contents.pop("training_examples"), "image_size": contents.pop("input_shape")}
    del contents["unit"], contents["units_per_example"]
    (tmp_path / SETUP_FILE).write_text(json.dumps(contents))
    assert read_sweep_setup(tmp_path) == SETUP


def test_sweep_without_a_target_is_refused():
    config = TrainConfig(workload="tests.support.workloads:without_target")
    with raises_code("option-missing", "cannot sweep tests.support.workloads:without_target", "--target"):
        load_workload_with_target(config)
    assert load_workload_with_target(replace(config, target=0.9)).target is None
    assert load_workload_with_target(TrainConfig(workload="digits")).target == 0.96


def test_damaged_setup_is_refused(tmp_path):
    (tmp_path / SETUP_FILE).write_text("{}")
    with raises_code("file-damaged", SETUP_FILE):
        read_sweep_setup(tmp_path)


def test_setup_of_a_sweep_that_is_refused_before_anything_was_measured_is_forgotten(tmp_path):
    write_sweep_setup(tmp_path, SETUP)
    (tmp_path / "trial.json").write_text("{}")
    with pytest.raises(EquipoiseError), forget_empty_sweep(tmp_path):
        raise EquipoiseError("command-unusable", "no such program")
    assert list(tmp_path.iterdir()) == []


def test_sweep_refused_before_its_setup_was_written_leaves_nothing(tmp_path):
    with raises_code("command-unusable"), forget_empty_sweep(tmp_path):
        raise EquipoiseError("command-unusable", "no such program")
    assert list(tmp_path.iterdir()) == []


def test_setup_of_a_sweep_with_measurements_stays(tmp_path):
    write_sweep_setup(tmp_path, SETUP)
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "1x8.json").write_text("{}")
    with pytest.raises(EquipoiseError), forget_empty_sweep(tmp_path):
        raise EquipoiseError("budget-too-small", "no time")
    assert read_sweep_setup(tmp_path) == SETUP
