"""Reports of replicas to a drift monitor: requests spread over replicas, and reports that are lost or come twice."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from msgspec import structs

from equipoise.drift.monitor.monitor import Monitor, Report
from equipoise.drift.monitor.report_ledger import Tick
from equipoise.drift.monitor.stream_key import StreamKey
from equipoise.drift.reference.profile import reference_to_arrays
from tests.support.drift_conditions import extract_features_in_any_light, render_light, two_lights_profile
from tests.support.drift_data import extract_shape_features, render_shapes, shapes_profile

STREAM = StreamKey("toy", "1")
RUN_LENGTH_REQUESTS = 2000.0  # requests without drift per false alarm
TICK_COUNT, IMAGES_PER_TICK = 12, 24


def build_reference_arrays(has_conditions=False):
    return reference_to_arrays(two_lights_profile() if has_conditions else shapes_profile())


def start_monitor(folder, stream=STREAM, has_conditions=False, **settings):
    monitor = Monitor(folder, RUN_LENGTH_REQUESTS, **settings)
    monitor.register(stream, build_reference_arrays(has_conditions))
    return monitor


@cache
def compute_image_rows(has_conditions=False):
    """Return the sums of single images, (ticks, images, integers): half of the ticks clean, half darker.

    Where two conditions are known, images under both take turns.
    """
    count = TICK_COUNT * IMAGES_PER_TICK
    if has_conditions:
        lights = [render_light(name, count // 2, 60) for name in ("plain", "warm")]
        images = torch.stack(lights, 1).flatten(0, 1)
    else:
        images = render_shapes(count, 60)[0]
    images[count // 2 :] = (images[count // 2 :].float() * 0.7).byte()
    profile = two_lights_profile() if has_conditions else shapes_profile()
    features = extract_features_in_any_light(images) if has_conditions else extract_shape_features(images)
    rows = np.stack([profile.baseline.sum_features(features.select([index])) for index in range(count)])
    return rows.reshape(TICK_COUNT, IMAGES_PER_TICK, -1)


def spread_over_replicas(image_rows, replicas, rng, streams=(STREAM,)):
    """Return the ticks of each replica by name: one for each tick of the clock in which it observed an image."""
    ticks_by_replica = {f"replica {index}": [] for index in range(replicas)}
    for clock, rows in enumerate(image_rows):
        owner = rng.integers(0, replicas, len(rows))
        for index, (_, ticks) in enumerate(ticks_by_replica.items()):
            if len(part := rows[rng.permutation(np.flatnonzero(owner == index))]):
                source = rng.choice(len(streams), len(part))
                sums = {
                    name: part[source == number].sum(0)
                    for number, name in enumerate(streams)
                    if (source == number).any()
                }
                ticks.append(Tick(len(ticks) + 1, clock, sums))
    return ticks_by_replica


def read_detector_states(monitor):
    """Return the state of each detector, which must not depend on how reports were delivered."""
    return {name: detector.state_arrays() for name, detector in monitor.detectors.items()}


def assert_equal_states(left, right):
    assert left.keys() == right.keys() and left
    for name in left:
        assert left[name].keys() == right[name].keys()
        for part in left[name]:
            np.testing.assert_array_equal(left[name][part], right[name][part], f"{name} {part}")


def report_in_order(monitor, image_rows):
    """Submit each tick once and in order, as the only replica, and return the monitor."""
    for clock, rows in enumerate(image_rows):
        monitor.submit_report(Report("one", clock, [Tick(clock + 1, clock, {STREAM: rows.sum(0)})]), 0.0)
    return monitor


@cache
def compute_expected_result(has_conditions=False):
    """Return the detector states and the verdict of a monitor with one replica and no failures."""
    with TemporaryDirectory() as folder:
        monitor = start_monitor(Path(folder), has_conditions=has_conditions)
        report_in_order(monitor, compute_image_rows(has_conditions))
        return read_detector_states(monitor), monitor.compute_verdict(STREAM)


def copy_ledger(monitor):
    """Return a copy of the ledger with lists instead of arrays, so that it can be compared."""
    waiting = {
        clock: {name: row.tolist() for name, row in rows.items()} for clock, rows in monitor.ledger.waiting.items()
    }
    return replace(monitor.ledger, waiting=waiting)


def deliver_reports(monitor, ticks_by_replica, rng, crash=lambda monitor: monitor):
    """Deliver reports in a random order that replicas may cause: lost, sent again, or their acknowledgement lost."""
    acknowledged = dict.fromkeys(ticks_by_replica, 0)
    finished = dict.fromkeys(ticks_by_replica, 0)  # ticks that each replica has finished
    for name in ticks_by_replica:  # each announces itself before any tick is closed
        monitor.submit_report(Report(name, -1, []), 0.0)
    while any(acknowledged[name] < len(ticks) for name, ticks in ticks_by_replica.items()):
        monitor = crash(monitor)
        name = rng.choice([*ticks_by_replica])
        ticks = ticks_by_replica[name]
        finished[name] = int(min(len(ticks), finished[name] + rng.integers(0, 4)))
        pending = ticks[acknowledged[name] : finished[name]]
        clock = TICK_COUNT if finished[name] == len(ticks) else ticks[finished[name]].clock - 1
        fate = rng.choice(["arrives", "is lost", "answer is lost", "arrives twice"])
        if fate == "is lost":
            continue
        report = Report(str(name), clock, pending)
        for _ in range(2 if fate == "arrives twice" else 1):
            number = monitor.submit_report(report, 0.0)
        if fate != "answer is lost":
            acknowledged[name] = number
    for name in ticks_by_replica:
        monitor.submit_report(Report(name, TICK_COUNT, []), 0.0)
    return monitor


def drop_delivery_counts(verdict):
    return structs.replace(verdict, replicas=0, ticks=None)
