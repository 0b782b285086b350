"""What a plan was measured with, and how it differs from that of a run."""

from dataclasses import replace

import pytest

from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.training_setup import (
    describe_device_mismatch,
    describe_target_mismatch,
    describe_version_mismatch,
    format_flag,
    format_value,
    is_same_value,
    rename_old_setup_keys,
)
from tests.support.sweep_folders import SETUP

CPU = HardwareFacts(processor="AMD EPYC", device="cpu")
GPU = HardwareFacts(processor="AMD EPYC", device="cuda", gpu="NVIDIA H200")


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"workload": "folder"}, "workload made-up (this run: folder)"),
        ({"data": "f" * 12}, "data with digest 0123456789ab (this run: ffffffffffff)"),
        ({"training_examples": 999}, "number of training examples 1000 (this run: 999)"),
        ({"input_shape": "3 x 64 x 64"}, "input shape 3 x 32 x 32 (this run: 3 x 64 x 64)"),
        ({"model": "ResNet"}, "model LeNet of 61,706 parameters (this run: ResNet)"),
        ({"initial_weights": "abc"}, "initial weights with digest None (this run: abc)"),
        ({"options": {"optimizer": "adamw", "momentum": 0.9}}, "--optimizer sgd (this run: adamw)"),
        ({"options": {"optimizer": "sgd"}}, "--momentum 0.9 (this run: None)"),
        ({"options": {"optimizer": "sgd", "momentum": "0.9"}}, "--momentum 0.9 (this run: '0.9')"),
        ({"options": {"optimizer": "sgd", "momentum": True}}, "--momentum 0.9 (this run: True)"),
        (
            {"options": {"optimizer": "sgd", "momentum": 0.9, "threads": 2}},
            "--threads that it does not say (this run: 2)",
        ),
    ],
)
def test_difference_is_named_with_both_values(changes, difference):
    assert SETUP.differences(replace(SETUP, **changes)) == [difference]


def test_all_differences_are_named():
    assert len(SETUP.differences(replace(SETUP, workload="a", model="b"))) == 2
    assert SETUP.differences(replace(SETUP, machine=GPU, target=0.95)) == []


def test_other_target_gets_a_note():
    assert describe_target_mismatch(SETUP, SETUP) is None
    note = describe_target_mismatch(SETUP, replace(SETUP, target=0.95))
    assert "target of at least 0.9 " in note and "has at least 0.95" in note
    note = describe_target_mismatch(SETUP, replace(SETUP, lower_is_better=True))
    assert "target of at least 0.9 " in note and "has at most 0.9:" in note
    assert describe_target_mismatch(SETUP, replace(SETUP, metric_name="accuracy")) is None  # older plans name none


@pytest.mark.parametrize(
    ("planned", "used", "has_note"),
    [
        (CPU, CPU, False),
        (CPU, replace(CPU, processor="Intel Xeon"), True),
        (CPU, GPU, True),
        (GPU, GPU, False),
        (GPU, replace(GPU, gpu="NVIDIA H100"), True),
        (GPU, replace(GPU, processor="Intel Xeon"), False),
        (HardwareFacts(), CPU, False),
        (CPU, replace(CPU, torch="2.99", cores=64), False),
    ],
)
def test_other_kind_of_device_gets_a_note(planned, used, has_note):
    note = describe_device_mismatch(planned, used)
    assert bool(note) == has_note
    if note:
        assert (planned.gpu or planned.processor) in note and (used.gpu or used.processor) in note


def test_true_is_not_the_number_one():
    switched, counted = (replace(SETUP, options={"compile": value}) for value in (True, 1.0))
    assert switched.differences(counted) == ["--compile True (this run: 1)"]
    assert counted.differences(replace(SETUP, options={"compile": 1})) == []


def test_other_versions_get_a_note_that_names_both():
    measured = replace(CPU, torch="2.1", equipoise="0.1.0")
    assert describe_version_mismatch(measured, measured) is None
    assert describe_version_mismatch(CPU, measured) is describe_version_mismatch(measured, CPU) is None
    assert "PyTorch 2.1 (this run: 1.0)" in describe_version_mismatch(measured, replace(measured, torch="1.0"))
    note = describe_version_mismatch(measured, replace(measured, torch="1.0", equipoise="0.2.0"))
    assert "PyTorch 2.1" in note and "Equipoise 0.1.0 (this run: 0.2.0)" in note


def test_setup_of_an_earlier_version_has_the_names_of_today():
    earlier = {"workload": "digits", "training_images": 1000, "image_size": "1 x 16 x 16"}
    names = {"workload": "digits", "training_examples": 1000, "input_shape": "1 x 16 x 16"}
    assert rename_old_setup_keys(earlier) == names == rename_old_setup_keys(names)
    assert rename_old_setup_keys(None) is None


@pytest.mark.parametrize(("schedule", "is_named"), [("constant", False), ("cosine", True)])
def test_the_number_of_examples_matters_to_schedules_that_end_with_it(schedule, is_named):
    planned = replace(SETUP, options={"schedule": schedule})
    run = replace(planned, options={"schedule": schedule, "max_examples": 500})
    differences = ["--max-examples that it does not say (this run: 500)"] if is_named else []
    assert planned.differences(run) == differences
    assert run.differences(planned) == ["--max-examples 500 (this run: None)"]


def test_values_are_written_as_people_type_them():
    assert [format_value(value) for value in (0.1, 1e-8, True, None, "sgd")] == ["0.1", "1e-08", "True", "None", "sgd"]
    assert format_value("0.9", 0.9) == "'0.9'" and format_value("sgd", "adamw") == format_value("sgd", None) == "sgd"
    assert format_flag("clip_norm") == "--clip-norm"
    assert [is_same_value(*pair) for pair in ((1, 1.0), (True, 1), (True, True), ("a", "a"), (None, None))] == [
        True, False, True, True, True,
    ]  # fmt: skip
