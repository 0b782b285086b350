"""Drift on a service that is hurt: a replica killed, bundles without a reference of use, a full disk for captures."""

import io
import json
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException

import numpy as np
import pytest
from PIL import Image

from equipoise.bundle.bundle import load_bundle
from equipoise.bundle.manifest import MANIFEST_FILE, REFERENCE_FILE, write_manifest
from equipoise.drift.corruptions import blur_images
from equipoise.drift.profiling.build_profile import LabelledOutputs, build_profile_arrays
from jobs.cluster.processes import find_free_ports, wait_until
from tests.serving.conftest import Service
from tests.support.ray_cluster import list_descendants

CLIENTS, REQUESTS, TICK = 4, 1200, 0.2


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """A disk without room."""
    place = tmp_path_factory.mktemp("disk")
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk small enough to fill")
    done = subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True)
    if done.returncode:
        pytest.skip(f"this machine lets no disk be mounted ({done.stderr!r})")
    (place / "taken").write_bytes(bytes(60 << 10))
    yield place
    subprocess.run(["/bin/umount", place], check=True)


@pytest.fixture(scope="module")
def hurt(stage, cluster, digits, disk, watched_digits, tmp_path_factory):
    place = tmp_path_factory.mktemp("hurt")
    good = watched_digits
    held = load_bundle(good)
    kept = held.load_reference_arrays()
    plain = {name: value for name, value in kept.items() if not name.startswith("drift.")}
    logits, features = (one.numpy() for one in held.run_engine(digits[:20]))
    twenty = LabelledOutputs(digits[:20], logits, features, np.zeros(20, np.int64))
    few = build_profile_arrays(held.run_engine, twenty, held.temperature)
    bundles = {
        "digits": good,
        "without": changed(good, place / "without", plain),
        "few": changed(good, place / "few", plain | few),
        "narrow": changed(good, place / "narrow", kept | {"drift.directions": kept["drift.directions"][:8]}),
    }
    return stage.show("hurt", lambda: served(cluster, bundles, disk, place))


def changed(good, folder, arrays):
    """A bundle with another reference."""
    shutil.copytree(good, folder)
    np.savez_compressed(folder / REFERENCE_FILE, **arrays)
    facts = load_bundle(good).manifest
    (folder / MANIFEST_FILE).unlink()
    write_manifest(folder, {name: value for name, value in facts.items() if name not in ("files", "digest", "schema")})
    return folder


@contextmanager
def served(cluster, bundles, disk, place):
    """All of them on two replicas."""
    (port,) = find_free_ports(1)
    arguments = {
        "port": port,
        "replicas": 2,
        "report_seconds": TICK,
        "state_dir": str(place / "state"),
        "capture_dir": str(disk),
    }
    arguments |= {"models": {name: {"bundle": str(one)} for name, one in bundles.items()}}
    application = {"name": "hurt", "route_prefix": "/", "import_path": "services.app:build", "args": arguments}
    cluster.deploy({"proxy_location": "Disabled", "applications": [application]})
    service = Service(port, bundles["digits"], 0, bundles["digits"])
    wait_until(lambda: len(replicas(cluster)) == 2 and ready(service), 120)
    yield service
    cluster.shut_down_serve()
    wait_until(lambda: not replicas(cluster), 60)


def ready(service):
    try:
        return service.ask("GET", "/ready")[0] == 200
    except OSError:
        return False


def replicas(cluster):
    return [pid for pid, command in list_descendants(cluster.head_pid).items() if "ServeReplica" in command]


def png(picture):
    file = io.BytesIO()
    Image.fromarray(picture[0].numpy()).save(file, "PNG")
    return file.getvalue()


def answered(service, picture):
    """Whether a picture was; a broken connection is tried once more, as clients do."""
    for attempt in range(2):
        connection = HTTPConnection("127.0.0.1", service.port, timeout=30)
        try:
            connection.request("POST", "/models/digits/predict", png(picture), {"content-type": "image/png"})
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            if attempt:
                raise
        finally:
            connection.close()
    return False


def send(service, pictures):
    """When each was answered."""
    with ThreadPoolExecutor(CLIENTS) as clients:

        def one(picture):
            assert answered(service, picture)
            return time.monotonic()

        return list(clients.map(one, pictures))


def judged(service):
    """What the monitor knows; where a connection breaks with the replica, or the monitor is restarted, once more."""

    def answers():
        try:
            status, _, body = service.ask("GET", "/drift?model=digits")
        except (OSError, HTTPException):
            return None
        return json.loads(body) if status == 200 else None

    return wait_until(answers, 60)


def test_a_killed_replica_costs_the_ticks_in_flight_and_is_reported(hurt, cluster, digits):
    some = digits[np.random.default_rng(1).integers(0, len(digits), REQUESTS)]
    with ThreadPoolExecutor(1) as beside:
        sending = beside.submit(send, hurt, some)
        wait_until(lambda: judged(hurt).get("images", 0) > REQUESTS / 4, 60)
        killed = time.monotonic()
        os.kill(replicas(cluster)[0], signal.SIGKILL)
        times = sending.result()
    wait_until(lambda: judged(hurt)["ticks"]["lost"], 60)
    found = judged(hurt)
    in_flight = sum(killed - 5 * TICK < at < killed + TICK for at in times)
    assert REQUESTS - in_flight - 16 < found["images"] <= REQUESTS
    assert (found["state"], found["ticks"]["lost"]) == ("ok", 1)
    events = hurt.json("GET", "/drift/history?model=digits")["events"]
    assert "replica lost" in [one["event"] for one in events]
    send(hurt, blur_images(some[:300], 0.8))
    found = wait_until(lambda: (one := judged(hurt))["state"] == "drift" and one, 30)
    assert found["cause"] == "blur"


@pytest.mark.parametrize(
    ("name", "words"),
    [("without", "no reference to compare with"), ("few", "the reference has 20 images"), ("narrow", "8 features")],
)
def test_without_a_reference_of_use_the_state_is_unknown_and_serving_goes_on(hurt, digits, name, words):
    for picture in digits[:40]:
        hurt.json("POST", f"/models/{name}/predict", png(picture), content_type="image/png")
    found = hurt.json("GET", f"/drift?model={name}")
    assert found["state"] == "unknown" and words in found["why"]


def test_a_full_disk_for_captures_costs_captures_only(hurt, disk, digits):
    assert hurt.json("GET", "/capture")["captures"] == []
    assert len(send(hurt, digits[:40])) == 40
    assert {path.name for path in disk.rglob("*") if path.is_file() and path.stat().st_size} == {"taken"}
