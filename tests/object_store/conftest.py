"""A store that speaks S3, on this machine, and a Ray whose environment has the credentials for it."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from equipoise.runs.record import Record
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.ray_cluster import ROOT, start_cluster

SERVER = ROOT / ".venv" / "moto" / "bin" / "moto_server"
BUCKET = "bucket"
PATIENCE = "20"
"""seconds: one attempt that hangs takes 15 of them"""


@dataclass
class Store:
    """The server, and what lies in its bucket."""

    process: subprocess.Popen[bytes]
    address: str
    client: Any

    def names(self, under: str) -> list[str]:
        """Of all that lies below."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=under + "/")
        return [one["Key"].removeprefix(under + "/") for page in pages for one in page.get("Contents", [])]

    def read(self, name: str) -> bytes:
        """One of them."""
        found: bytes = self.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
        return found

    def json(self, name: str) -> Any:
        """One of them."""
        return json.loads(self.read(name))

    def record(self, run: str) -> Record:
        """Of a run that has ended."""
        return Record.from_json(self.json(f"{run}/record.json"))

    @contextmanager
    def away(self) -> Iterator[None]:
        """Who asks it something within the block gets no answer."""
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)


@pytest.fixture(scope="session")
def variables():
    """What the environment holds for the client of a store, wherever it runs."""
    (port,) = find_free_ports(1)
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "not-to-be-seen",
        "AWS_DEFAULT_REGION": "us-east-1",
        "EQUIPOISE_STORE_RETRY_SECONDS": PATIENCE,
    }


@pytest.fixture(scope="session")
def store(variables, tmp_path_factory):
    address = variables["AWS_ENDPOINT_URL"]
    log = tmp_path_factory.mktemp("store") / "log"
    with log.open("wb") as said:
        words = [str(SERVER), "-H", "127.0.0.1", "-p", address.rpartition(":")[2]]
        process = subprocess.Popen(words, stdout=said, stderr=said)
    client = boto3.client(
        "s3",
        endpoint_url=address,
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region_name=variables["AWS_DEFAULT_REGION"],
    )
    try:
        wait_until(lambda: process.poll() is not None or "Running on" in log.read_text(), 60, "the store's start")
        assert process.poll() is None, log.read_text()
        client.create_bucket(Bucket=BUCKET)
        yield Store(process, address, client)
    finally:
        client.close()
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def cluster(store, variables):
    with start_cluster(**variables) as made:
        yield made
