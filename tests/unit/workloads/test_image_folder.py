"""What is said of images that cannot be read."""

import logging
from pathlib import Path

import pytest

from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from equipoise.workloads.image_folder import warn_unreadable
from tests.support.photographs import save_photographs


@pytest.mark.parametrize(("image_size", "side"), [(None, 64), (40, 40)])
def test_photographs_have_the_size_that_was_asked_for_or_64_pixels(tmp_path, image_size, side):
    save_photographs(tmp_path, 8)
    config = TrainConfig(workload="folder", data=str(tmp_path), model="lenet", image_size=image_size, batch_size=8)
    workload = load_workload(config)
    assert workload.train.inputs[:1].shape == (1, 3, side, side)


@pytest.mark.parametrize(("count", "named", "ending"), [(1, 1, ""), (5, 5, ""), (6, 5, ", ...")])
def test_unreadable_images_are_counted_and_five_are_named(caplog, count, named, ending):
    with caplog.at_level(logging.WARNING):
        warn_unreadable([Path(f"{index}.png") for index in range(count)], 40)
    names = ", ".join(f"{index}.png" for index in range(named))
    assert caplog.messages == [f"left out {count} of 40 images that cannot be read: {names}{ending}"]


def test_nothing_is_said_where_all_images_are_readable(caplog):
    warn_unreadable([], 40)
    assert caplog.messages == []
