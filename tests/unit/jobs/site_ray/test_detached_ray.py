"""What is noted about a Ray that outlives its site, and when it is no longer believed."""

import os

import msgspec
import psutil
import pytest

from equipoise.storage.atomic import write_json
from jobs.site_ray.detached_ray import (
    FACTS_FILE,
    DetachedRayFacts,
    build_head_command,
    build_ray_environment,
    find_detached_ray,
    read_ray_token,
)


def write_facts(folder, **changes):
    facts = DetachedRayFacts(
        gcs_address="127.0.0.1:1",
        dashboard_url="http://127.0.0.1:2",
        temp_dir="/nowhere",
        head_pid=os.getpid(),
        head_created=psutil.Process().create_time(),
    )
    facts = msgspec.structs.replace(facts, **changes)
    write_json(folder / FACTS_FILE, msgspec.to_builtins(facts))
    return facts


def test_a_ray_is_found_while_its_process_runs(tmp_path):
    assert find_detached_ray(tmp_path) is None
    assert write_facts(tmp_path) == find_detached_ray(tmp_path)


@pytest.mark.parametrize("changes", [{"head_created": 1000.0}, {"head_pid": 2**22 + 1}])
def test_another_process_with_its_id_or_none_is_not_taken_for_it(tmp_path, changes):
    write_facts(tmp_path, **changes)
    assert find_detached_ray(tmp_path) is None


def test_damaged_facts_are_not_believed(tmp_path):
    (tmp_path / FACTS_FILE).write_text('{"schema": 1')
    assert find_detached_ray(tmp_path) is None


def test_the_token_stays_and_is_its_owners_alone(tmp_path):
    token = read_ray_token(tmp_path)
    assert read_ray_token(tmp_path) == token and len(token) == 64
    assert (tmp_path / "ray-token").stat().st_mode & 0o077 == 0


def test_the_head_takes_the_token_of_its_folder_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of somebody else")
    environment = build_ray_environment(tmp_path)
    assert not {"RAY_ADDRESS", "RAY_AUTH_TOKEN"} & environment.keys()
    assert environment["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "ray-token")


def test_the_head_listens_on_loopback_alone_and_has_the_cpus_that_it_is_given():
    command = build_head_command("/tmp/x", (1, 2, 3, 4), cpus=2)  # noqa: S108 - nothing is written
    assert {"--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", "--port=1", "--dashboard-port=2"} <= {*command}
    assert command[-1] == "--num-cpus=2"
    assert build_head_command("/tmp/x", (1, 2, 3, 4), cpus=None) == command[:-1]  # noqa: S108
