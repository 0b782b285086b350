"""Private parts of Ray exist where jobs look for them, and behave as jobs rely on."""

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
from jobs.ray_train.stopping import find_cause
from jobs.ray_train.trainer import SKIPPED_CALLBACKS, build_trainer
from tests.support.ray_cluster import ROOT

AUTOSCALING_SCRIPT = """
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
    "node_types": resources.autoscaler_node_types(),
    "max_slots": resources.max_slots(1, False),
    "free_slots": resources.free_slots(1, False),
    "max_resources": internals.state.get_max_resources_from_cluster_config(),
}
print(json.dumps(facts), flush=True)
resources.exit_at_once(7)
"""


@pytest.mark.parametrize("name", ray_internals.__all__)
def test_every_exported_name_exists(name):
    assert getattr(ray_internals, name) is not None


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = ray_internals.Nonsense


def test_cluster_config_sets_the_slot_limit_and_ray_ends_with_its_process():
    with TemporaryDirectory(prefix="eq-", dir="/tmp") as folder:  # paths of Ray's sockets must be short
        variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        result = subprocess.run(
            (sys.executable, "-c", AUTOSCALING_SCRIPT),
            env=variables | {"RAY_TMPDIR": folder},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert result.returncode == 7, result.stderr
        assert not find_raylets(folder)
    facts = json.loads(result.stdout.splitlines()[-1])
    assert facts["before"] == [None, [], 2]
    assert facts["node_types"] == [[{"CPU": 4}, 8]]
    assert (facts["max_slots"], facts["free_slots"], facts["max_resources"]["CPU"]) == (20, 2, 20)


@pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning")  # from inside Ray Data
def test_trainer_leaves_out_only_the_skipped_callbacks(tmp_path):
    trainer = build_trainer(
        print, {}, TrainConfig(workload="digits", workers=4, threads=2), tmp_path / "x", gpu=False, min_workers=2
    )
    default = TorchTrainer._create_default_callbacks(trainer)
    ours = trainer._create_default_callbacks()
    missing = [type(callback) for callback in default if type(callback) not in map(type, ours)]
    assert set(missing) == set(SKIPPED_CALLBACKS)
    assert len(ours) == len(default) - len(SKIPPED_CALLBACKS)
    assert all(isinstance(callback, ray_internals.RayTrainCallback) for callback in default)


def test_store_error_is_found_in_the_error_of_the_ray_controller():
    assert find_cause(ray.train.ControllerError(StoreUnavailable("gone")), (StoreUnavailable,)).args == ("gone",)


def test_local_node_provider_matches_the_interface_of_its_base(monkeypatch):
    monkeypatch.setenv("RAY_FAKE_CLUSTER", "1")
    name = "_create_node_with_resources_and_labels"
    own_signature, ray_signature = (
        inspect.signature(getattr(provider, name))
        for provider in (LocalNodeProvider, ray_internals.FakeMultiNodeProvider)
    )
    assert list(own_signature.parameters) == list(ray_signature.parameters)
    provider = LocalNodeProvider({"gcs_address": "127.0.0.1:1", "head_node_id": "head"}, "x")
    assert provider._gcs_address == "127.0.0.1:1"
    assert [*provider._nodes] == ["head"]
    assert provider._next_hex_node_id() != provider._next_hex_node_id()
    with provider.lock:
        params = ray_internals.RayParams(runtime_env_dir_name="x", env_vars={}, labels={}, resources={})
    assert params.runtime_env_dir_name == "x"
    constants = ray_internals.ray_constants
    assert constants.RESOURCES_ENVIRONMENT_VARIABLE != constants.LABELS_ENVIRONMENT_VARIABLE
    assert {"head", "shutdown_at_exit", "spawn_reaper"} <= set(inspect.signature(ray_internals.Node).parameters)


def test_ray_validates_a_cluster_file():
    config = yaml.safe_load(Path(ROOT, "cluster.local.yaml").read_text())
    ray_internals.validate_config(ray_internals.prepare_config(copy.deepcopy(config)))
    with pytest.raises(Exception, match="nonsense"):
        ray_internals.validate_config(ray_internals.prepare_config(config | {"nonsense": 1}))
