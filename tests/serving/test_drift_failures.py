"""Drift detection under failures: a killed replica, bundles without a usable reference, a full disk for captures."""

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
from equipoise.bundle.folder import REFERENCE_FILE, write_manifest
from equipoise.drift.corruptions import blur_images
from equipoise.drift.profiling.build_profile import LabelledOutputs, build_profile_arrays
from jobs.cluster.processes import find_free_ports, wait_until
from tests.serving.conftest import Service
from tests.support.ray_cluster import PATIENCE_SECONDS, list_descendants

NUM_CLIENTS, NUM_REQUESTS, REPORT_SECONDS = 4, 1200, 0.2


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory):
    """Mount a file system of 64 KiB with hardly any free space, and return its folder."""
    folder = tmp_path_factory.mktemp("disk")
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk small enough to fill")
    mount = subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True)
    if mount.returncode:
        pytest.skip(f"this machine lets no disk be mounted ({mount.stderr!r})")
    (folder / "taken").write_bytes(bytes(60 << 10))
    yield folder
    subprocess.run(["/bin/umount", folder], check=True)


@pytest.fixture(scope="module")
def faulty_service(service_slot, cluster, digit_images, full_disk, monitored_digits, tmp_path_factory):
    """Start a service whose captures go to a full disk, with one good bundle and three without a usable reference."""
    folder = tmp_path_factory.mktemp("hurt")
    good = monitored_digits
    model = load_bundle(good)
    reference = model.load_reference_arrays()
    without_drift = {name: value for name, value in reference.items() if not name.startswith("drift.")}
    logits, features = (output.numpy() for output in model.run_engine(digit_images[:20]))
    twenty = LabelledOutputs(digit_images[:20], logits, features, np.zeros(20, np.int64))
    profile_of_twenty = build_profile_arrays(model.run_engine, twenty, model.temperature)
    narrow = reference | {"drift.directions": reference["drift.directions"][:8]}
    bundles = {
        "digits": good,
        "without": copy_with_reference(good, folder / "without", without_drift),
        "few": copy_with_reference(good, folder / "few", without_drift | profile_of_twenty),
        "narrow": copy_with_reference(good, folder / "narrow", narrow),
    }
    return service_slot.use("faulty", lambda: deploy_service(cluster, bundles, full_disk, folder))


def copy_with_reference(bundle, folder, arrays):
    """Copy a bundle to the folder with other reference arrays; return the folder."""
    shutil.copytree(bundle, folder)
    np.savez_compressed(folder / REFERENCE_FILE, **arrays)
    write_manifest(folder, load_bundle(bundle).manifest)
    return folder


@contextmanager
def deploy_service(cluster, bundles, capture_folder, folder):
    """Deploy all bundles on two replicas, and shut them down at the end."""
    (port,) = find_free_ports(1)
    arguments = {
        "port": port,
        "replicas": 2,
        "report_seconds": REPORT_SECONDS,
        "state_dir": str(folder / "state"),
        "capture_dir": str(capture_folder),
    }
    arguments |= {"models": {name: {"bundle": str(bundle)} for name, bundle in bundles.items()}}
    application = {"name": "hurt", "route_prefix": "/", "import_path": "services.app:build", "args": arguments}
    cluster.deploy({"proxy_location": "Disabled", "applications": [application]})
    service = Service(port, bundles["digits"], 0, bundles["digits"], folder / "log")
    wait_until(lambda: len(list_replica_pids(cluster)) == 2 and is_ready(service), PATIENCE_SECONDS)
    yield service
    cluster.shut_down_serve()
    wait_until(lambda: not list_replica_pids(cluster), PATIENCE_SECONDS)


def is_ready(service):
    try:
        return service.request("GET", "/ready")[0] == 200
    except OSError:
        return False


def list_replica_pids(cluster):
    return [pid for pid, command in list_descendants(cluster.head_pid).items() if "ServeReplica" in command]


def encode_png(image):
    file = io.BytesIO()
    Image.fromarray(image[0].numpy()).save(file, "PNG")
    return file.getvalue()


def predict_image(service, image):
    """Return whether an image was answered; retry once when the connection breaks, as clients do."""
    for attempt in range(2):
        connection = HTTPConnection("127.0.0.1", service.port, timeout=30)
        try:
            connection.request("POST", "/models/digits/predict", encode_png(image), {"content-type": "image/png"})
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            if attempt:
                raise
        finally:
            connection.close()
    return False


def predict_images(service, images):
    """Request a prediction for each image; return the times at which they were answered."""
    with ThreadPoolExecutor(NUM_CLIENTS) as clients:

        def time_prediction(image):
            assert predict_image(service, image)
            return time.monotonic()

        return list(clients.map(time_prediction, images))


def read_verdict(service):
    """Return the monitor's verdict; retry if the connection breaks with the replica or the monitor is restarted."""

    def request_verdict():
        try:
            status, _, body = service.request("GET", "/drift?model=digits")
        except (OSError, HTTPException):
            return None
        return json.loads(body) if status == 200 else None

    return wait_until(request_verdict, 60)


def test_killed_replica_loses_only_unreported_images_and_is_reported(faulty_service, cluster, digit_images):
    images = digit_images[np.random.default_rng(1).integers(0, len(digit_images), NUM_REQUESTS)]
    with ThreadPoolExecutor(1) as executor:
        sending = executor.submit(predict_images, faulty_service, images)
        wait_until(lambda: read_verdict(faulty_service).get("images", 0) > NUM_REQUESTS / 4, PATIENCE_SECONDS)
        killed_at = time.monotonic()
        os.kill(list_replica_pids(cluster)[0], signal.SIGKILL)
        answer_times = sending.result()
    wait_until(lambda: read_verdict(faulty_service)["ticks"]["lost"], PATIENCE_SECONDS)
    verdict = read_verdict(faulty_service)
    in_flight = sum(
        killed_at - 5 * REPORT_SECONDS < answered_at < killed_at + REPORT_SECONDS for answered_at in answer_times
    )
    assert NUM_REQUESTS - in_flight - 16 < verdict["images"] <= NUM_REQUESTS
    assert (verdict["state"], verdict["ticks"]["lost"]) == ("ok", 1)
    events = faulty_service.request_json("GET", "/drift/history?model=digits")["events"]
    assert "replica lost" in [event["event"] for event in events]
    predict_images(faulty_service, blur_images(images[:300], 0.8))
    verdict = wait_until(
        lambda: (current := read_verdict(faulty_service))["state"] == "drift" and current, PATIENCE_SECONDS
    )
    assert verdict["cause"] == "blur"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("without", "no reference to compare with"), ("few", "the reference has 20 images"), ("narrow", "8 features")],
)
def test_without_usable_reference_state_is_unknown_and_requests_are_answered(
    faulty_service, digit_images, name, reason
):
    for image in digit_images[:40]:
        faulty_service.request_json("POST", f"/models/{name}/predict", encode_png(image), content_type="image/png")
    verdict = faulty_service.request_json("GET", f"/drift?model={name}")
    assert verdict["state"] == "unknown" and reason in verdict["why"]


def test_full_disk_loses_captures_and_no_requests(faulty_service, full_disk, digit_images):
    assert faulty_service.request_json("GET", "/capture")["captures"] == []
    assert len(predict_images(faulty_service, digit_images[:40])) == 40
    assert {path.name for path in full_disk.rglob("*") if path.is_file() and path.stat().st_size} == {"taken"}
