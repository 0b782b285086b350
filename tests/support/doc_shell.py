"""Run the code blocks of a page as its reader would: in one folder, one after another, services in the background."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

from jobs.cluster.private_ray import ENVIRONMENT_BIN
from jobs.cluster.processes import find_free_ports, terminate_process_groups, wait_until
from tests.support.doc_fences import Fence, list_fences
from tests.support.ray_cluster import Cluster

PAGE_PORT = 8000  # at which the pages say that a service answers
START_SECONDS, COMMAND_SECONDS = 120, 240
SUITE = "tests/docs"


class DocShell:
    """Folder of a reader, and the Ray on which the commands run."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder, self.cluster = folder, cluster
        path = f"{ENVIRONMENT_BIN}:{cluster.environment['PATH']}"
        self.environment = cluster.environment | {"PATH": path, "no_proxy": "*", "NO_PROXY": "*"}

    def run_page(self, page: Path) -> dict[str, str]:
        """Run the blocks of a page that belong to this suite; return what each printed, by id."""
        outputs: dict[str, str] = {}
        services: list[subprocess.Popen[str]] = []
        port = find_free_ports(1)[0]
        try:
            for fence in list_fences(page):
                if "id" not in fence.attributes or fence.attributes.get("in", SUITE) != SUITE:
                    continue
                if "file" in fence.attributes:
                    (self.folder / fence.attributes["file"]).write_text(fence.text, encoding="utf-8")
                elif "service" in fence.attributes:
                    services.append(self.start_service(fence, port))
                else:
                    outputs[fence.name] = self.run_block(fence, port)
        finally:
            self.stop_services(services)
        return outputs

    def spawn(self, fence: Fence, port: int, **options: Any) -> subprocess.Popen[str]:
        text = fence.text.strip().replace(f":{PAGE_PORT}", f":{port}")
        if "service" in fence.attributes:
            text = f"exec {text} port={port}"
        command = [sys.executable, "-c", text] if fence.language == "python" else ["/bin/bash", "-euc", text]
        options |= {"cwd": self.folder, "env": self.environment, "start_new_session": True, "text": True}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)
        self.cluster.processes.append(process)
        return process

    def run_block(self, fence: Fence, port: int) -> str:
        """Run a block to its end; its exit status must be one that the block names."""
        start = time.monotonic()
        process = self.spawn(fence, port, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, errors = process.communicate(timeout=COMMAND_SECONDS)
        assert process.returncode in fence.statuses, f"{fence.text}\n{process.returncode}\n{output}{errors}"
        print(f"{time.monotonic() - start:6.1f} s  {fence.name}")
        return output

    def start_service(self, fence: Fence, port: int) -> subprocess.Popen[str]:
        """Start a service and wait until it is ready."""
        log = self.folder / "service.log"
        with log.open("w") as file:
            process = self.spawn(fence, port, stdout=file, stderr=subprocess.STDOUT)
        opener = build_opener(ProxyHandler({}))

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            with suppress(OSError), opener.open(f"http://127.0.0.1:{port}/ready", timeout=5) as reply:
                return reply.status == 200
            return False

        wait_until(is_ready, START_SECONDS, fence.text)
        return process

    def stop_services(self, services: list[subprocess.Popen[str]]) -> None:
        """Stop services with Ctrl-C, as a reader does."""
        for process in services:
            process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            for process in services:
                process.wait(START_SECONDS)
        terminate_process_groups(services)
        if services:
            self.cluster.shut_down_serve()


def read_json_values(text: str) -> list[Any]:
    """Return the JSON values of a text that follow each other."""
    decoder, values = json.JSONDecoder(), []
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:]
    return values


def find_missing_keys(shown: Any, printed: Any, place: str = "") -> Iterator[str]:
    """Yield where a value that a page shows has a key, or another type, than the one that a command printed."""
    if isinstance(shown, dict) and isinstance(printed, dict):
        for key in shown.keys() - {"..."}:
            if key not in printed:
                yield f"{place}.{key}"
            else:
                yield from find_missing_keys(shown[key], printed[key], f"{place}.{key}")
    elif isinstance(shown, list) and isinstance(printed, list):
        if shown and printed:
            yield from find_missing_keys(shown[0], printed[0], f"{place}[0]")
    elif isinstance(shown, dict | list) or isinstance(printed, dict | list):
        yield place
