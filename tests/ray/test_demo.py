"""make demo, but for its installation."""

import json
import sys

from equipoise.record import Record


def test_the_demo_reaches_its_target_and_shows_it(cluster, tmp_path):
    done = cluster.run(sys.executable, "-m", "jobs.demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "runs" / "demo"
    found = Record.from_json(json.loads((out / "record.json").read_text()))
    assert found.reached
    assert f"{found.test:.4f}" in done.stdout
    assert f"{found.examples_to_target:,.0f} examples" in done.stdout
    page = (out / "run.html").read_text()
    assert "digits: 2 x 16" in page and f"{found.examples_to_target:,.0f}" in page
    assert "<script src=" not in page  # it opens without a network
