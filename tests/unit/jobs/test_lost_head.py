"""What is said of a head of the cluster that does not answer."""

import socket
from threading import Event, Thread

from jobs.cluster.lost_head import LOST_HEAD_REMEDY, accepts_connections, report_lost_head
from jobs.cluster.processes import wait_until
from jobs.cluster.resources import require_answering_head
from tests.support.errors import raises_code


def test_head_that_stops_to_listen_is_reported_once(capsys):
    block_ends, printed = Event(), []
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        thread = Thread(target=report_lost_head, args=(address, block_ends, 0.01))
        thread.start()
        server.accept()[0].close()  # it has been looked at
        assert capsys.readouterr().err == ""
    assert not accepts_connections(address)
    wait_until(lambda: printed.append(capsys.readouterr().err) or any(printed), 10, "the report")
    assert not block_ends.wait(0.2)
    block_ends.set()
    thread.join()
    text = "".join([*printed, capsys.readouterr().err])
    assert text.count(LOST_HEAD_REMEDY) == text.count(address) == text.count("\n") == 1


def test_cluster_at_whose_address_nothing_answers_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        require_answering_head(address)
    with raises_code("cluster-unreachable", address):
        require_answering_head(address, wait_seconds=0.01)
    for other in ("", "auto", "local", f"ray://{address}"):
        require_answering_head(other)
