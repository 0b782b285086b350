"""What is said of a head of the cluster that does not answer."""

import socket

import pytest

from jobs.cluster.lost_head import LOST_HEAD_REMEDY, accepts_connections, watch_head
from jobs.cluster.processes import wait_until
from jobs.cluster.resources import require_answering_head
from tests.support.errors import raises_code


def test_head_that_stops_to_listen_is_reported_once(capfd):
    printed = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with watch_head(address, 0.01):
            for _ in range(3):
                server.accept()[0].close()  # it has been looked at
            assert capfd.readouterr().err == ""
            server.close()
            assert not accepts_connections(address)
            wait_until(lambda: printed.append(capfd.readouterr().err) or any(printed), 30, "the report")
            with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))) as new_server:
                for _ in range(3):
                    new_server.accept()[0].close()
    text = "".join([*printed, capfd.readouterr().err])
    assert text.count(LOST_HEAD_REMEDY) == text.count(address) == text.count("\n") == 1


def test_watcher_ends_with_its_block():
    with pytest.raises(KeyboardInterrupt), watch_head("127.0.0.1:1", 60.0):
        raise KeyboardInterrupt


def test_cluster_at_whose_address_nothing_answers_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        require_answering_head(address)
    with raises_code("cluster-unreachable", address):
        require_answering_head(address, wait_seconds=0.01)
    for other in ("", "auto", "local", f"ray://{address}"):
        require_answering_head(other)
