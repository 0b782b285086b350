"""Slots for workers on nodes, and the messages of a run that waits for them."""

import os
import signal
import sys
from pathlib import Path

import pytest

from jobs.cluster.resources import (
    format_slots,
    set_worker_group_timeout,
    sigterm_exit_as_ctrl_c,
    slots_on_node,
    warn_if_temporary_folder,
    worker_resources,
)
from jobs.cluster.wait import LOST_WORKERS_CHECK_SECONDS, LostWorkersNotice, ThrottledPrinter

GPU_NODE = {"CPU": 8.0, "GPU": 2.0, "memory": 1e9}


@pytest.mark.parametrize(
    ("node", "threads", "gpu", "slots"),
    [
        (GPU_NODE, 1, False, 8),
        (GPU_NODE, 3, False, 2),
        (GPU_NODE, 8, False, 1),
        (GPU_NODE, 9, False, 0),
        (GPU_NODE, 1, True, 2),
        (GPU_NODE, 5, True, 1),
        ({"CPU": 3.9}, 1, False, 3),
        ({"CPU": 4.0}, 1, True, 0),
        ({"CPU": 4.0, "GPU": 0.5}, 1, True, 0),
        ({"GPU": 2.0}, 1, False, 0),
        ({}, 1, False, 0),
    ],
)
def test_node_holds_as_many_workers_as_its_cpus_and_gpus_allow(node, threads, gpu, slots):
    assert slots_on_node(node, threads, gpu) == slots


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("gpu", [False, True])
def test_workers_of_all_slots_fit_on_the_node_and_one_more_does_not(threads, gpu):
    slots, needed = slots_on_node(GPU_NODE, threads, gpu), worker_resources(threads, gpu)
    assert all(slots * amount <= GPU_NODE[name] for name, amount in needed.items())
    assert any((slots + 1) * amount > GPU_NODE[name] for name, amount in needed.items())


def test_slots_are_described_in_words():
    assert format_slots(1, 1, False) == "1 slot of 1 CPU"
    assert format_slots(3, 2, True) == "3 slots of 2 CPU and a GPU"
    assert format_slots(2000, 1, False, "more ") == "2,000 more slots of 1 CPU"


@pytest.mark.parametrize(("status", "expected"), [(signal.SIGTERM, KeyboardInterrupt), (1, SystemExit)])
def test_exit_of_rays_own_handler_is_a_stop_of_the_command(status, expected):
    with pytest.raises(expected), sigterm_exit_as_ctrl_c():
        sys.exit(status)


def test_elastic_group_waits_briefly_and_often(monkeypatch):
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "before")
    assert set_worker_group_timeout(elastic=True) == 60
    assert os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] == "10"


def test_relative_folder_of_a_submitted_job_is_warned_about(tmp_path, monkeypatch, capsys):
    copy = tmp_path / "working_dir_files" / "_ray_pkg_1"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)
    warn_if_temporary_folder(Path("/shared/x"))
    assert capsys.readouterr() == ("", "")
    warn_if_temporary_folder(Path("runs/x"))
    output = capsys.readouterr()
    assert output.out == "" and output.err.startswith("note: runs/x ") and str(copy) in output.err
    monkeypatch.chdir(tmp_path)
    warn_if_temporary_folder(Path("runs/x"))
    assert capsys.readouterr() == ("", "")


def test_text_is_printed_again_when_it_changes(capsys):
    print_throttled = ThrottledPrinter()
    for text in ("a", "a", "b", "b", "a", "", "", "a"):
        print_throttled(text)
    assert capsys.readouterr().out.split() == ["a", "b", "a", "a"]


@pytest.mark.parametrize(("age_seconds", "is_repeated"), [(50.0, False), (61.0, True)])
def test_text_that_stays_the_same_is_repeated_after_a_minute(capsys, age_seconds, is_repeated):
    print_throttled = ThrottledPrinter()
    print_throttled("a")
    print_throttled.printed_at -= age_seconds
    print_throttled("a")
    print_throttled("a")
    assert capsys.readouterr().out.count("a") == 1 + is_repeated


def test_cluster_is_not_looked_at_before_the_check_is_due(capsys):
    notice = LostWorkersNotice(4, 1, False)
    due_at = notice.next_check_at
    notice.check_cluster()  # needs Ray once it is due
    assert notice.next_check_at == due_at and capsys.readouterr().out == ""
    assert LOST_WORKERS_CHECK_SECONDS == 5.0
