"""Cluster on this machine: what is checked before it starts, and what is printed while it runs."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
import yaml

from jobs.cluster.local import (
    LocalClusterOptions,
    build_head_environment,
    count_worker_nodes,
    format_usage_lines,
    is_port_open,
    main,
    print_node_counts,
    raise_keyboard_interrupt,
    read_local_cluster_file,
    require_free_port,
    require_private_token,
)
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.errors import raises_code

ROOT = Path(__file__).parents[3]
LOCAL = ROOT / "cluster.local.yaml"
START_PROGRAMS = """
import subprocess, sys
while line := sys.stdin.readline():
    subprocess.Popen([line.strip(), "100"])
"""


class HeadProcess:
    """Process with children, each of which runs a program of a given name."""

    def __init__(self, folder):
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, "-c", START_PROGRAMS], stdin=subprocess.PIPE, text=True)

    def start_child(self, name):
        program, count = self.folder / name, len(self.find_children(name))
        if not program.exists():
            shutil.copy("/bin/sleep", program)
        self.process.stdin.write(f"{program}\n")
        self.process.stdin.flush()
        wait_until(lambda: len(self.find_children(name)) == count + 1, 20, f"the start of {name}")

    def find_children(self, name):
        return [child for child in psutil.Process(self.process.pid).children() if child.name() == name]

    def stop(self):
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children():
                child.kill()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def token(tmp_path, monkeypatch):
    """Write a token that only its owner can read, and return its path."""
    path = tmp_path / "token"
    path.write_text("x" * 64)
    path.chmod(0o600)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    return path


@pytest.fixture
def head(tmp_path):
    head = HeadProcess(tmp_path)
    yield head
    head.stop()


def run_main(monkeypatch, capsys, *arguments):
    """Run the command on these arguments; return its exit status and its error, with the signal handlers as before."""
    monkeypatch.setattr("sys.argv", ["local-cluster", *map(str, arguments)])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        return main(), capsys.readouterr().err
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_file_of_a_local_cluster_is_read():
    assert read_local_cluster_file(LOCAL) == yaml.safe_load(LOCAL.read_text())


def test_cluster_of_other_machines_is_refused(tmp_path):
    shared = ROOT / "services" / "kuberay" / "shared.yaml"
    claim, _ = yaml.safe_load_all(shared.read_text())
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(claim))
    for path in (ROOT / "cluster.yaml", shared, tmp_path / "claim.yaml"):
        with raises_code("cluster-file", path, "machines elsewhere"):
            read_local_cluster_file(path)


def test_first_problem_of_a_file_is_reported(tmp_path):
    (tmp_path / "x.yaml").write_text(LOCAL.read_text().replace("launch_multiple", "launch_many"))
    with raises_code("cluster-file", f"{tmp_path / 'x.yaml'}: provider.launch_many: "):
        read_local_cluster_file(tmp_path / "x.yaml")


def test_token_that_only_its_owner_reads_is_accepted(token):
    for mode in (0o600, 0o400, 0o700):
        token.chmod(mode)
        require_private_token()


@pytest.mark.parametrize("mode", [0o601, 0o602, 0o604, 0o610, 0o620, 0o640])
def test_token_that_others_can_use_is_refused(token, mode):
    token.chmod(mode)
    with raises_code("file-permissions", token):
        require_private_token()


def test_missing_token_is_refused(token, monkeypatch):
    token.unlink()
    with raises_code("path-missing", token, f"chmod 600 {token}"):
        require_private_token()
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    monkeypatch.setenv("HOME", str(token.parent))
    with raises_code("path-missing", token.parent / ".ray" / "auth_token"):
        require_private_token()
    (token.parent / ".ray").mkdir()
    (token.parent / ".ray" / "auth_token").touch(mode=0o600)
    require_private_token()


def test_port_that_a_program_listens_on_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_port_open(port)
        with raises_code("port-in-use", port):
            require_free_port(port)
    [free_port] = find_free_ports(1)
    assert not is_port_open(free_port)
    require_free_port(free_port)


@pytest.mark.parametrize("port", [-1, 0, 65536])
def test_impossible_port_is_refused(token, monkeypatch, capsys, port):
    status, error = run_main(monkeypatch, capsys, LOCAL, "--port", port)
    assert status == 2 and error.endswith("[option-range]\n") and f"got {port}" in error


@pytest.mark.parametrize("port", [1, 65535])
def test_lowest_and_highest_port_are_possible(token, monkeypatch, capsys, port):
    try:
        server = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        pytest.skip(f"cannot listen on port {port}: {error}")
    with server:
        status, error = run_main(monkeypatch, capsys, LOCAL, "--port", port)
    assert status == 2 and error.endswith("[port-in-use]\n")


def test_file_and_token_are_checked_before_the_port(token, monkeypatch, capsys):
    token.chmod(0o644)
    assert run_main(monkeypatch, capsys, LOCAL, "--port", 0)[1].endswith("[file-permissions]\n")
    assert run_main(monkeypatch, capsys, ROOT / "cluster.yaml", "--port", 0)[1].endswith("[cluster-file]\n")


def test_signal_ends_the_command_like_ctrl_c():
    with pytest.raises(KeyboardInterrupt):
        raise_keyboard_interrupt(signal.SIGTERM, None)


def test_address_is_printed_with_the_variables_to_export():
    options = LocalClusterOptions(file=LOCAL, port=8300)
    first, second = format_usage_lines({"max_workers": 4}, options)
    assert "http://127.0.0.1:8300 accepts jobs" in first and "up to 4 nodes" in first
    assert second.split() == ["export", "RAY_AUTH_MODE=token", "RAY_API_SERVER_ADDRESS=http://127.0.0.1:8300"]
    assert LocalClusterOptions(file=LOCAL).port == 8265


def test_head_requires_a_token_and_finds_the_project_and_its_programs(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    environment = build_head_environment("f" * 56)
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_CLOUD_INSTANCE_ID"] == "f" * 56
    assert (Path(environment["PYTHONPATH"]) / "jobs" / "cluster" / "local_node_provider.py").is_file()
    first, *others = environment["PATH"].split(":")
    assert Path(first, "python").exists() and others == ["/usr/bin", "/bin"]


def test_nodes_are_the_raylets_beside_that_of_the_head(head):
    counts = []
    for name in ("gcs_server", "raylet", "raylet", "worker", "raylet"):
        head.start_child(name)
        counts.append(count_worker_nodes(head.process.pid))
    assert counts == [0, 0, 1, 1, 2]
    assert count_worker_nodes(os.getpid()) == 2  # at any depth


def test_number_of_nodes_is_printed_when_it_changes_until_the_head_stops(head, capsys):
    head.start_child("raylet")
    watcher = threading.Thread(target=print_node_counts, args=(psutil.Process(head.process.pid),))
    watcher.start()
    printed = ""

    def has_printed(expected):
        nonlocal printed
        printed += capsys.readouterr().out
        return printed == expected

    try:
        head.start_child("raylet")
        wait_until(lambda: has_printed("1 node\n"), 20, "the first node")
        head.find_children("raylet")[0].kill()
        wait_until(lambda: has_printed("1 node\nno nodes\n"), 20, "the end of the node")
    finally:
        head.stop()
        watcher.join(20)
    assert not watcher.is_alive() and has_printed("1 node\nno nodes\n")
