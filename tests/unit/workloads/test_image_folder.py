"""What is said of images that cannot be read."""

import logging
from pathlib import Path

import pytest

from equipoise.workloads.image_folder import warn_unreadable


@pytest.mark.parametrize(("count", "named", "ending"), [(1, 1, ""), (5, 5, ""), (6, 5, ", ...")])
def test_unreadable_images_are_counted_and_five_are_named(caplog, count, named, ending):
    with caplog.at_level(logging.WARNING):
        warn_unreadable([Path(f"{index}.png") for index in range(count)], 40)
    names = ", ".join(f"{index}.png" for index in range(named))
    assert caplog.messages == [f"left out {count} of 40 images that cannot be read: {names}{ending}"]


def test_nothing_is_said_where_all_images_are_readable(caplog):
    warn_unreadable([], 40)
    assert caplog.messages == []
