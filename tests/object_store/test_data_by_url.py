"""Data by URL: copied once to a machine from a real S3 server, whatever happens meanwhile."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from equipoise.storage.node_cache import PARALLEL_DOWNLOADS
from jobs.cluster.processes import wait_until
from tests.support.photographs import save_photographs
from tests.support.ray_cluster import ROOT

TIMEOUT_SECONDS = 400  # enough for a machine that is shared with other work
FETCH_PROGRAM = """
import sys
from equipoise.storage.node_cache import fetch_data
print("ready", flush=True)
sys.stdin.readline()
print(fetch_data(sys.argv[1]))
"""


@pytest.fixture
def environment(store_environment, tmp_path):
    """Environment of a process that fetches data into a cache of its own."""
    return os.environ | store_environment | {"EQUIPOISE_CACHE_DIR": str(tmp_path / "cache")}


def start_fetch(url, environment):
    """Start a process that fetches the data behind a URL once it is told to, and wait until it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", FETCH_PROGRAM, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )
    assert process.stdout.readline() == "ready\n", process.communicate()
    return process


def let_fetch(process):
    process.stdin.write("\n")
    process.stdin.flush()


def finish_fetch(process):
    """Return the folder that a process has fetched, and its warnings."""
    stdout, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, stderr
    return Path(stdout.strip()), stderr


def fetch_folder(url, environment):
    process = start_fetch(url, environment)
    let_fetch(process)
    return finish_fetch(process)


def write_objects(store, folder, contents):
    for name, content in contents.items():
        store.client.put_object(Bucket="bucket", Key=f"{folder}/{name}", Body=content)


def read_tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def number_objects(count, size):
    return {f"class {index % 3}/é{index:03}": bytes([index]) * size for index in range(count)}


def test_two_processes_at_once_read_each_object_once(store, environment):
    contents = number_objects(40, 3000)
    write_objects(store, "at-once", contents | {"class 0/": b""})  # the mark of an empty folder, as consoles make it
    processes = [start_fetch("s3://bucket/at-once", environment) for _ in range(2)]
    for process in processes:
        let_fetch(process)
    (first, first_notes), (second, second_notes) = [finish_fetch(process) for process in processes]
    assert first == second and read_tree(first) == contents
    assert (first_notes + second_notes).count("copying 40 objects") == 1
    reads = store.count_reads("at-once")
    assert len(reads) == 40 and set(reads.values()) == {1}


def test_changed_data_are_fetched_anew_and_unchanged_data_are_not(store, environment):
    write_objects(store, "changed", {"a/1": b"one", "a/2": b"two"})
    older, _ = fetch_folder("s3://bucket/changed", environment)
    write_objects(store, "changed", {"a/2": b"two"})  # again, with the same content
    assert fetch_folder("s3://bucket/changed/", environment) == (older, "")
    write_objects(store, "changed", {"a/2": b"owt"})
    newer, _ = fetch_folder("s3://bucket/changed", environment)
    assert read_tree(older) == {"a/1": b"one", "a/2": b"two"}
    assert read_tree(newer) == {"a/1": b"one", "a/2": b"owt"}
    assert store.count_reads("changed") == Counter({"a/1": 2, "a/2": 2})


def test_killed_copy_is_absent_and_goes_on_with_what_is_missing(store, environment, tmp_path):
    contents = number_objects(120, 200_000)
    write_objects(store, "killed", contents)
    process = start_fetch("s3://bucket/killed", environment)
    let_fetch(process)
    wait_until(lambda: len(list(tmp_path.glob("cache/data/*/partial/*/*"))) >= 20 or process.poll() is not None, 60)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    arrived = len(list(tmp_path.glob("cache/data/*/partial/*/*")))
    assert 20 <= arrived < 120 and not list(tmp_path.glob("cache/data/*/files"))
    folder, notes = fetch_folder("s3://bucket/killed", environment)
    assert f"copying {120 - arrived} objects" in notes and read_tree(folder) == contents
    reads = store.count_reads("killed")
    assert len(reads) == 120 and sum(reads.values()) <= 120 + PARALLEL_DOWNLOADS
    assert [path.name for path in folder.parent.iterdir() if path.name != ".lock"] == ["files"]


def test_copy_waits_for_a_store_that_does_not_answer(store, environment, tmp_path):
    contents = number_objects(120, 200_000)
    write_objects(store, "paused", contents)
    process = start_fetch("s3://bucket/paused", environment)
    let_fetch(process)
    wait_until(lambda: list(tmp_path.glob("cache/data/*/partial/*/*")) or process.poll() is not None, 60)
    with store.pause():
        lines = iter(process.stderr.readline, "")
        assert any("does not answer" in line and "retrying" in line for line in lines)
    folder, _ = finish_fetch(process)
    assert read_tree(folder) == contents


@pytest.mark.parametrize(
    ("url", "variables", "error", "sentence"),
    [
        ("s3://nowhere/x", {}, "EquipoiseError", "cannot read s3://nowhere/x: The specified bucket does not exist"),
        ("s3://bucket/nothing", {}, "EquipoiseError", "cannot read s3://bucket/nothing: there is no object below it"),
        (
            "s3://bucket/x",
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            "EquipoiseError",
            "Unable to locate credentials",
        ),
        (
            "s3://bucket/x",
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "EQUIPOISE_STORE_RETRY_SECONDS": "0"},
            "StoreUnavailable",
            "s3://bucket/x does not answer",
        ),
    ],
)
def test_what_cannot_be_fetched_is_reported_in_one_sentence(
    store, environment, tmp_path, url, variables, error, sentence
):
    process = start_fetch(url, environment | variables | {"AWS_EC2_METADATA_DISABLED": "true"})
    let_fetch(process)
    _, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
    last_line = stderr.splitlines()[-1]
    assert process.returncode == 1 and error in last_line and sentence in last_line
    assert "not-to-be-seen" not in stderr and not (tmp_path / "cache").exists()


def test_two_workers_train_on_photographs_behind_a_url(cluster, store, tmp_path):
    save_photographs(tmp_path / "photos", 40)
    store.write_folder("photos", tmp_path / "photos")
    command = [sys.executable, "-m", "jobs.train", "--workload", "folder", "--model", "lenet", "--image-size", "32"]
    command += ["--workers", "2", "--batch-size", "8", "--max-examples", "400", "--target", "2.0"]
    results = [
        cluster.run(*command, "--data", data, "--out", str(tmp_path / out), timeout=TIMEOUT_SECONDS)
        for data, out in ((str(tmp_path / "photos"), "local"), ("s3://bucket/photos", "remote"))
    ]
    assert [result.returncode for result in results] == [0, 0], results[1].stderr
    reads = store.count_reads("photos")
    assert len(reads) == 120 and set(reads.values()) == {1}
    weights = [(tmp_path / out / "model.safetensors").read_bytes() for out in ("local", "remote")]
    assert weights[0] == weights[1]
    assert '"data": "s3://bucket/photos"' in (tmp_path / "remote" / "record.json").read_text()
