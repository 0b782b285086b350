"""Under load another bundle is swapped in, a replica is killed, and no client notices."""

import io
import json
import os
import signal
from http.client import HTTPConnection, HTTPException

import numpy as np
import pytest
from PIL import Image

from equipoise.bundle.bundle import load_bundle
from jobs.cluster.processes import find_free_ports, wait_until
from tests.serving.load import Load
from tests.support.ray_cluster import list_descendants

SWAPS = 20


@pytest.fixture(scope="module")
def picture():
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16)).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def expected(bundles, picture):
    """Of each bundle, its version and the score it gives the picture."""
    models = [load_bundle(path) for path in bundles]
    scores = [float(model.predict(model.preprocess([picture])).scores.max()) for model in models]
    return {model.manifest["digest"][:12]: score for model, score in zip(models, scores, strict=True)}


@pytest.fixture(scope="module")
def deployed(stage, cluster, bundles):
    """A way to deploy a bundle on replicas, as serve deploy does, and the port they listen on."""
    stage.clear()
    (port,) = find_free_ports(1)

    def put(path, replicas):
        scale = {"autoscaling_config": replicas} if isinstance(replicas, dict) else {"num_replicas": replicas}
        predictor = {"name": "Predictor", "user_config": {"digits": {"bundle": str(path)}}} | scale
        application = {"name": "swap", "route_prefix": "/", "import_path": "services.app:build", "args": {"port": port}}
        application |= {"deployments": [predictor]}
        cluster.deploy({"proxy_location": "Disabled", "applications": [application]})

    def told():
        """What new connections are told of the models: the kernel deals them out among replicas."""
        found = []
        for _ in range(12):
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                connection.request("GET", "/models")
                found.append(json.loads(connection.getresponse().read()))
            except (OSError, HTTPException):
                found.append({"models": [], "not_loaded": "no replica"})
            finally:
                connection.close()
        return found

    def versions():
        """The versions that answer, and None where nothing does."""
        return {one["models"][0]["current"]["version"] if one["models"] else None for one in told()}

    yield put, versions, told, port
    cluster.shut_down_serve()


def test_twenty_swaps_under_load_lose_nothing_and_mix_nothing(deployed, bundles, expected, picture):
    put, versions, _, port = deployed
    ids = list(expected)
    put(bundles[0], 2)
    wait_until(lambda: versions() == {ids[0]}, 120)
    load = Load(port, picture)
    with load.running():
        for turn in range(SWAPS):
            put(bundles[(turn + 1) % 2], 2)
            wait_until(lambda turn=turn: versions() == {ids[(turn + 1) % 2]}, 60)
    assert load.wrong == []
    assert {version for version, _ in load.replies} == set(ids)
    for version, score in load.replies:
        assert score == pytest.approx(expected[version], abs=1e-4)


def test_a_replica_that_is_killed_is_not_missed(cluster, deployed, bundles, expected, picture):
    put, versions, _, port = deployed
    put(bundles[0], 2)
    wait_until(lambda: versions() == {next(iter(expected))}, 120)
    wait_until(lambda: len(replicas(cluster)) == 2, 60)
    load = Load(port, picture)
    with load.running():
        wait_until(lambda: len(load.replies) > 200, 60)
        victim = replicas(cluster)[0]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(replicas(cluster)) == 2 and victim not in replicas(cluster), 60)
        seen = len(load.replies)
        wait_until(lambda: len(load.replies) > seen + 200, 60)
    assert load.wrong == []


def test_a_bundle_that_cannot_be_loaded_leaves_what_answers(deployed, bundles, expected, tmp_path):
    put, versions, told, _ = deployed
    before = versions()
    put(tmp_path / "none", 2)
    wait_until(lambda: all("none" in str(one["not_loaded"]) for one in told()), 60)
    assert versions() == before


def test_replicas_come_and_go_with_the_work(cluster, deployed, bundles):
    put, versions, _, port = deployed
    quick = {"metrics_interval_s": 0.5, "look_back_period_s": 2, "upscale_delay_s": 1, "downscale_delay_s": 1}
    policy = {"policy_function": "services.scaling:policy"}
    put(bundles[0], {"min_replicas": 1, "max_replicas": 2, "policy": policy} | quick)
    wait_until(lambda: None not in versions() and len(replicas(cluster)) == 1, 120)
    large = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (900, 900)).astype(np.uint8)).save(large, "PNG")
    load = Load(port, large.getvalue())
    with load.running():
        wait_until(lambda: len(replicas(cluster)) == 2, 120)
        wait_until(lambda: None not in versions(), 60)
        load.pause = 0.2
        wait_until(lambda: len(replicas(cluster)) == 1, 120)
    assert load.wrong == []


def replicas(cluster):
    """Processes of replicas."""
    return [pid for pid, command in list_descendants(cluster.head_pid).items() if "ServeReplica:swap" in command]
