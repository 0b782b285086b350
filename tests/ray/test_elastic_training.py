"""An elastic run of jobs.train on the workers that are free.

Its file comes before those of other trainings: Ray reserves the slots of a job that ended early for elastic runs for a
minute or two.
"""

import pytest
import torch
from safetensors.torch import load_file

from equipoise.runs.folder import read_record


@pytest.mark.slow
@pytest.mark.thorough
def test_elastic_run_uses_the_free_workers_and_ends_with_the_same_weights(cluster, tmp_path):
    out, single = tmp_path / "run", tmp_path / "single"
    flags = ["--batch-size", 8, "--max-examples", 3200, "--target", 2.0, "--precision", "fp64"]
    result = cluster.run(*cluster.build_train_command(*flags, "--workers", "1:4", "--out", out))
    assert result.returncode == 0, result.stderr
    record = read_record(out / "record.json")
    assert {lap.workers for lap in record.laps} == {2}
    assert record.config.global_batch == 32
    assert cluster.run(*cluster.build_train_command(*flags, "--grad-accumulation", 4, "--out", single)).returncode == 0
    elastic_weights, single_weights = (load_file(folder / "model.safetensors") for folder in (out, single))
    assert all(
        torch.allclose(elastic_weights[name], single_weights[name], rtol=1e-10, atol=1e-12) for name in elastic_weights
    )
