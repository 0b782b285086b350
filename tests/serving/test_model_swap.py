"""Swapping bundles and killing a replica under load, without a failed request."""

import io
import json
import os
import signal
from http.client import HTTPConnection, HTTPException

import numpy as np
import psutil
import pytest
from PIL import Image

from equipoise.bundle.bundle import load_bundle
from jobs.cluster.processes import find_free_ports, wait_until
from tests.serving.load import LoadGenerator
from tests.support.ray_cluster import PATIENCE_SECONDS, list_descendants

NUM_SWAPS = 20


@pytest.fixture(scope="module")
def image_png():
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16)).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def expected_scores(bundles, image_png):
    """The score that each bundle gives the image, by the bundle's version."""
    models = [load_bundle(path) for path in bundles]
    scores = [float(model.predict(model.preprocess([image_png])).scores.max()) for model in models]
    return {model.version: score for model, score in zip(models, scores, strict=True)}


@pytest.fixture(scope="module")
def deployment(service_slot, cluster, bundles):
    """Functions that deploy a bundle as `serve deploy` does and read what replicas load, and the replicas' port."""
    service_slot.clear()
    (port,) = find_free_ports(1)

    def deploy_bundle(path, replicas):
        scale = {"autoscaling_config": replicas} if isinstance(replicas, dict) else {"num_replicas": replicas}
        predictor = {"name": "Predictor", "user_config": {"digits": {"bundle": str(path)}}} | scale
        application = {"name": "swap", "route_prefix": "/", "import_path": "services.app:build", "args": {"port": port}}
        application |= {"deployments": [predictor]}
        cluster.deploy({"proxy_location": "Disabled", "applications": [application]})

    def read_models():
        """Return the replies of 12 new connections to /models, which the kernel distributes among replicas."""
        replies = []
        for _ in range(12):
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                connection.request("GET", "/models")
                replies.append(json.loads(connection.getresponse().read()))
            except (OSError, HTTPException):
                replies.append({"models": [], "not_loaded": "no replica"})
            finally:
                connection.close()
        return replies

    def read_versions():
        """Return the set of versions that answer, with None if a connection was not answered by a model."""
        return {reply["models"][0]["current"]["version"] if reply["models"] else None for reply in read_models()}

    yield deploy_bundle, read_versions, read_models, port
    cluster.shut_down_serve()


@pytest.mark.slow
def test_twenty_swaps_under_load_lose_and_mix_no_requests(deployment, bundles, expected_scores, image_png):
    deploy_bundle, read_versions, _, port = deployment
    versions = list(expected_scores)
    deploy_bundle(bundles[0], 2)
    wait_until(lambda: read_versions() == {versions[0]}, PATIENCE_SECONDS)
    load = LoadGenerator(port, image_png)
    with load.run_clients():
        for swap in range(NUM_SWAPS):
            deploy_bundle(bundles[(swap + 1) % 2], 2)
            wait_until(lambda swap=swap: read_versions() == {versions[(swap + 1) % 2]}, PATIENCE_SECONDS)
    assert load.failures == []
    assert {version for version, _ in load.replies} == set(versions)
    for version, score in load.replies:
        assert score == pytest.approx(expected_scores[version], abs=1e-4)


def test_killed_replica_fails_no_request(cluster, deployment, bundles, expected_scores, image_png):
    deploy_bundle, read_versions, _, port = deployment
    deploy_bundle(bundles[0], 2)
    wait_until(lambda: read_versions() == {next(iter(expected_scores))}, PATIENCE_SECONDS)
    # a replica that is loading could not stand in
    wait_until(lambda: len(list_listening_pids(cluster, port)) == 2, PATIENCE_SECONDS)
    load = LoadGenerator(port, image_png)
    with load.run_clients():
        wait_until(lambda: len(load.replies) > 200, PATIENCE_SECONDS)
        victim = list_listening_pids(cluster, port)[0]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(set(list_listening_pids(cluster, port)) - {victim}) == 2, PATIENCE_SECONDS)
        count_before = len(load.replies)
        wait_until(lambda: len(load.replies) > count_before + 200, PATIENCE_SECONDS)
    assert load.failures == []


def test_bundle_that_cannot_be_loaded_leaves_the_current_one(deployment, bundles, expected_scores, tmp_path):
    deploy_bundle, read_versions, read_models, _ = deployment
    before = read_versions()
    deploy_bundle(tmp_path / "none", 2)
    wait_until(lambda: all("none" in str(reply["not_loaded"]) for reply in read_models()), PATIENCE_SECONDS)
    assert read_versions() == before


@pytest.mark.slow
def test_number_of_replicas_follows_the_load(cluster, deployment, bundles):
    deploy_bundle, read_versions, _, port = deployment
    timing = {"metrics_interval_s": 0.5, "look_back_period_s": 2, "upscale_delay_s": 1, "downscale_delay_s": 1}
    policy = {"policy_function": "services.scaling:policy"}
    deploy_bundle(bundles[0], {"min_replicas": 1, "max_replicas": 2, "policy": policy} | timing)
    wait_until(lambda: None not in read_versions() and len(list_replica_pids(cluster)) == 1, PATIENCE_SECONDS)
    large_png = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (900, 900)).astype(np.uint8)).save(large_png, "PNG")
    load = LoadGenerator(port, large_png.getvalue())
    with load.run_clients():
        wait_until(lambda: len(list_replica_pids(cluster)) == 2, PATIENCE_SECONDS)
        wait_until(lambda: None not in read_versions(), PATIENCE_SECONDS)
        load.pause_seconds = 0.2
        wait_until(lambda: len(list_replica_pids(cluster)) == 1, PATIENCE_SECONDS)
    assert load.failures == []


def list_replica_pids(cluster):
    return [pid for pid, command in list_descendants(cluster.head_pid).items() if "ServeReplica:swap" in command]


def list_listening_pids(cluster, port):
    """Return the ids of the replicas' processes that accept connections at the port."""
    return [pid for pid in list_replica_pids(cluster) if is_listening(pid, port)]


def is_listening(pid, port):
    try:
        sockets = psutil.Process(pid).net_connections("tcp")
    except psutil.NoSuchProcess:
        return False
    return any(socket.status == psutil.CONN_LISTEN and socket.laddr.port == port for socket in sockets)
