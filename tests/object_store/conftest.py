"""A local S3 server, and a Ray cluster whose environment has the credentials for it."""

import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from equipoise.runs.record import Record
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.ray_cluster import ROOT, start_cluster

SERVER = ROOT / ".venv" / "moto" / "bin" / "moto_server"
BUCKET = "bucket"
STORE_RETRY_SECONDS = "20"
"""one attempt that hangs takes 15 of them"""


@dataclass
class ObjectStore:
    """A running S3 server with one bucket."""

    process: subprocess.Popen[bytes]
    address: str
    client: Any
    log: Path

    def list_names(self, folder: str) -> list[str]:
        """Return the names of all objects below a folder, relative to it."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=folder + "/")
        return [entry["Key"].removeprefix(folder + "/") for page in pages for entry in page.get("Contents", [])]

    def read_bytes(self, name: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
        return content

    def write_folder(self, name: str, folder: Path) -> None:
        """Write all files below a local folder."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.client.upload_file(str(path), BUCKET, f"{name}/{path.relative_to(folder)}")

    def count_reads(self, folder: str) -> Counter[str]:
        """Count how often each object below a folder was read."""
        return Counter(re.findall(rf'"GET /{BUCKET}/{folder}/(\S+) HTTP/[\d.]+" 20', self.log.read_text()))

    def read_json(self, name: str) -> Any:
        return json.loads(self.read_bytes(name))

    def read_record(self, run: str) -> Record:
        return Record.from_json(self.read_json(f"{run}/record.json"))

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the server for the length of the block: requests get no reply."""
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)


@pytest.fixture(scope="session")
def store_environment(tmp_path_factory):
    """Environment variables with the address of the store and the credentials for it."""
    (port,) = find_free_ports(1)
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "not-to-be-seen",
        "AWS_DEFAULT_REGION": "us-east-1",
        "EQUIPOISE_STORE_RETRY_SECONDS": STORE_RETRY_SECONDS,
        "EQUIPOISE_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
    }


@pytest.fixture(scope="session")
def store(store_environment, tmp_path_factory):
    address = store_environment["AWS_ENDPOINT_URL"]
    log = tmp_path_factory.mktemp("store") / "log"
    with log.open("wb") as output:
        command = [str(SERVER), "-H", "127.0.0.1", "-p", address.rpartition(":")[2]]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    client = boto3.client(
        "s3",
        endpoint_url=address,
        aws_access_key_id=store_environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=store_environment["AWS_SECRET_ACCESS_KEY"],
        region_name=store_environment["AWS_DEFAULT_REGION"],
    )
    try:
        wait_until(lambda: process.poll() is not None or "Running on" in log.read_text(), 60, "the store's start")
        assert process.poll() is None, log.read_text()
        client.create_bucket(Bucket=BUCKET)
        yield ObjectStore(process, address, client, log)
    finally:
        client.close()
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def cluster(store, store_environment):
    with start_cluster(**store_environment) as cluster:
        yield cluster
