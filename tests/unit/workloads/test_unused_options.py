"""Options of one kind of data are refused for another, instead of being ignored."""

import pytest

from equipoise.config import TrainConfig
from equipoise.workloads import UNUSED_OPTIONS, WORKLOADS, load_workload
from tests.support.errors import raises_code

VALUES = {"label": "y", "image_size": 64, "channels_last": True}


@pytest.mark.parametrize(
    ("name", "option"), [(name, option) for name in UNUSED_OPTIONS for option in UNUSED_OPTIONS[name]]
)
def test_option_without_effect_is_refused_before_any_data_are_read(name, option, tmp_path):
    with raises_code("option-conflict", f"--{option.replace('_', '-')}", name):
        load_workload(TrainConfig(workload=name, data=str(tmp_path / "none"), **{option: VALUES[option]}))


def test_each_workload_takes_the_options_of_its_own_kind():
    assert UNUSED_OPTIONS.keys() == WORKLOADS.keys()
    assert "label" not in UNUSED_OPTIONS["table"]
    assert load_workload(TrainConfig(workload="digits", image_size=20, channels_last=True)).train.inputs.shape[-1] == 20
