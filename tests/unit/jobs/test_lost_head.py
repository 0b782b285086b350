"""What is said of a head of the cluster that does not answer."""

import socket
from threading import Event, Thread

import pytest
from ray.exceptions import ActorUnavailableError

from equipoise.errors import CommandFailed, EquipoiseError
from jobs.cluster.lost_head import LOST_HEAD_REMEDY, accepts_connections, explain_lost_head, report_lost_head
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


@pytest.mark.parametrize("error", [ActorUnavailableError("gone", None), ConnectionError("no reply")])
def test_errors_of_a_cluster_without_its_head_are_a_sentence(error):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConnectionError), explain_lost_head(address):
            raise ConnectionError("no reply")
    with pytest.raises(CommandFailed, match=LOST_HEAD_REMEDY), explain_lost_head(address):
        raise error
    with raises_code("option-range"), explain_lost_head(address):
        raise EquipoiseError("option-range", "a mistake of the user")
