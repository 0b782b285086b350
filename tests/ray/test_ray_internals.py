"""Private parts of Ray are where jobs look for them, and do what jobs rely on."""

import copy
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import ray.train
import yaml
from ray.train.torch import TorchTrainer

from equipoise.config import TrainConfig
from equipoise.storage.retry import StoreUnavailable
from jobs.cluster import ray_internals
from jobs.cluster.local_node_provider import LocalNodeProvider
from jobs.cluster.processes import find_raylets
from jobs.ray_train.stopping import find_store_error
from jobs.ray_train.trainer import SKIPPED_CALLBACKS, build_trainer
from tests.support.ray_cluster import ROOT

OWN_RAY = """
import json, os
import jobs
jobs.isolate_local_ray()
import ray
from jobs.cluster import ray_internals as internals, resources
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
before = internals.state.get_cluster_config(), resources.autoscaler_node_types(), resources.max_slots(1, False)
config = internals.ClusterConfig()
group = internals.NodeGroupConfig(name="worker", resources={"CPU": 4}, max_count=8)
config.node_group_configs.append(group)
config.max_resources["CPU"] = 20
internals.put_cluster_config(config)
facts = {
    "before": before,
    "kinds": resources.autoscaler_node_types(),
    "most": resources.max_slots(1, False),
    "free": resources.free_slots(1, False),
    "max": internals.state.get_max_resources_from_cluster_config(),
}
print(json.dumps(facts), flush=True)
resources.shutdown_and_exit(7)
"""


@pytest.mark.parametrize("name", ray_internals.__all__)
def test_every_name_is_there(name):
    assert getattr(ray_internals, name) is not None


def test_no_other_name_is_made_up():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = ray_internals.Nonsense


def test_a_cluster_is_told_how_far_it_may_grow_and_ends_with_its_process():
    with TemporaryDirectory(prefix="eq-", dir="/tmp") as place:  # paths of Ray's sockets must be short
        variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        done = subprocess.run(
            (sys.executable, "-c", OWN_RAY),
            env=variables | {"RAY_TMPDIR": place},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 7, done.stderr
        assert not find_raylets(place)
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["before"] == [None, [], 2]
    assert facts["kinds"] == [[{"CPU": 4}, 8]]
    assert (facts["most"], facts["free"], facts["max"]["CPU"]) == (20, 2, 20)


@pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning")  # Ray Data's, of itself
def test_the_trainer_leaves_out_two_callbacks_of_ray_and_no_more(tmp_path):
    made = build_trainer(
        print, {}, TrainConfig(workload="digits", workers=4, threads=2), tmp_path / "x", gpu=False, min_workers=2
    )
    usual, ours = TorchTrainer._create_default_callbacks(made), made._create_default_callbacks()
    left_out = [type(one) for one in usual if type(one) not in map(type, ours)]
    assert set(left_out) == set(SKIPPED_CALLBACKS)
    assert len(ours) == len(usual) - len(SKIPPED_CALLBACKS)
    assert all(isinstance(one, ray_internals.RayTrainCallback) for one in usual)


def test_an_error_of_the_store_is_found_behind_ray_s_own():
    assert find_store_error(ray.train.ControllerError(StoreUnavailable("gone"))).args == ("gone",)


def test_the_provider_of_local_nodes_is_the_one_that_is_built_on(monkeypatch):
    monkeypatch.setenv("RAY_FAKE_CLUSTER", "1")
    name = "_create_node_with_resources_and_labels"
    own, theirs = (
        inspect.signature(getattr(one, name)) for one in (LocalNodeProvider, ray_internals.FakeMultiNodeProvider)
    )
    assert list(own.parameters) == list(theirs.parameters)
    made = LocalNodeProvider({"gcs_address": "127.0.0.1:1", "head_node_id": "head"}, "x")
    assert made._gcs_address == "127.0.0.1:1"
    assert [*made._nodes] == ["head"]
    assert made._next_hex_node_id() != made._next_hex_node_id()
    with made.lock:
        params = ray_internals.RayParams(runtime_env_dir_name="x", env_vars={}, labels={}, resources={})
    assert params.runtime_env_dir_name == "x"
    constants = ray_internals.ray_constants
    assert constants.RESOURCES_ENVIRONMENT_VARIABLE != constants.LABELS_ENVIRONMENT_VARIABLE
    assert {"head", "shutdown_at_exit", "spawn_reaper"} <= set(inspect.signature(ray_internals.Node).parameters)


def test_ray_checks_a_cluster_file():
    config = yaml.safe_load(Path(ROOT, "cluster.local.yaml").read_text())
    ray_internals.validate_config(ray_internals.prepare_config(copy.deepcopy(config)))
    with pytest.raises(Exception, match="nonsense"):
        ray_internals.validate_config(ray_internals.prepare_config(config | {"nonsense": 1}))
