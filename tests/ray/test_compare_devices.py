"""jobs.compare_devices on a real cluster: both files are written, and the words name the share of the exchange."""

import json
import sys

import pytest

from equipoise.planning.device_comparison.comparison_report import DeviceComparison

COMMAND = (sys.executable, "-m", "jobs.compare_devices", "--workload", "digits", "--batch-sizes", "8", "64")


@pytest.mark.slow
@pytest.mark.thorough
def test_command_writes_comparison_and_page(cluster, tmp_path):
    out = tmp_path / "comparison"
    result = cluster.run(*COMMAND, "--batch-size", "8", "--seconds", "5", "--out", str(out))
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in out.iterdir()) == [".lock", "comparison.html", "comparison.json"]
    comparison = DeviceComparison.from_json(json.loads((out / "comparison.json").read_text()))
    assert [row.batch for row in comparison.rows] == [8, 64] and all(row.measured for row in comparison.rows)
    assert comparison.nodes == 1 and comparison.workers == 2 and comparison.flop_per_example > 0
    assert "the exchange takes " in result.stdout and "1 worker, a step" in result.stdout
    assert "1 worker or 2 workers" in (out / "comparison.html").read_text()
