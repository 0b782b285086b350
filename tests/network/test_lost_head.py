"""An asynchronous run whose head is killed ends with a sentence. Ray takes a minute for it, too long elsewhere."""

from equipoise.runs.folder import read_record
from jobs.cluster.lost_head import LOST_HEAD_REMEDY
from jobs.cluster.processes import find_process_tree, kill_processes, wait_until
from tests.ray.test_async_training import PATIENCE_SECONDS, build_command, load_checkpoint_laps, require_replay
from tests.support.ray_cluster import start_cluster


def test_run_whose_head_is_killed_ends_and_the_same_command_resumes_it(tmp_path):
    out = tmp_path / "run"
    with start_cluster() as lost_cluster:
        process = lost_cluster.start(*build_command(lost_cluster, out), log=tmp_path / "log")
        wait_until(lambda: load_checkpoint_laps(out) or process.poll() is not None, PATIENCE_SECONDS, "a checkpoint")
        assert process.poll() is None, (tmp_path / "log").read_text()
        kill_processes(find_process_tree(lost_cluster.head_pid))
        process.wait(PATIENCE_SECONDS)  # Ray gives up after a minute, unless it notices before that an actor has died
    log = (tmp_path / "log").read_text()
    assert process.returncode != 0 and "Traceback" not in log, (process.returncode, log)
    assert LOST_HEAD_REMEDY in log, (process.returncode, log)
    before = load_checkpoint_laps(out)
    with start_cluster() as cluster:
        resumed = cluster.run(*build_command(cluster, out), timeout=PATIENCE_SECONDS)
        assert resumed.returncode == 0, resumed.stderr
        assert "resuming after step" in resumed.stdout
        assert list(read_record(out / "record.json").laps)[: len(before)] == before
        require_replay(cluster, out)
