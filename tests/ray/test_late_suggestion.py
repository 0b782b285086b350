"""A search whose time is up before its next trial starts."""

import sys


def test_a_trial_without_time_to_start_does_not_fail_the_search(cluster, tmp_path):
    result = cluster.run(sys.executable, "-m", "tests.support.late_suggestion", str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "1 trial ended, 0 are running"
    assert len(list((tmp_path / "trials").glob("*.json"))) == 1
