from itertools import islice

from equipoise.config import TrainConfig
from equipoise.runs.folder import read_record
from equipoise.storage.atomic import write_json
from equipoise.training.loop import Training
from equipoise.training.run_record import build_run_record

CONFIG = TrainConfig(
    workload="digits", batch_size=32, target=2.0, eval_every=320, max_examples=960, noise_scale_every=5
)


def test_record_of_a_run_is_written_as_it_was_read(tmp_path):
    training = Training(CONFIG)
    assert list(training.laps())
    record = build_run_record(training, test=0.5)
    assert (record.status, record.test, record.laps[-1].seen) == ("max_examples", 0.5, 960)
    assert record.laps[0].total_batch == 32
    write_json(tmp_path / "record.json", record.to_json())
    assert read_record(tmp_path / "record.json") == record
    write_json(tmp_path / "again.json", read_record(tmp_path / "record.json").to_json())
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "record.json").read_bytes()


def test_record_of_a_run_in_progress_is_running():
    training = Training(CONFIG)
    assert build_run_record(training).laps == []
    (lap,) = islice(training.laps(), 1)
    record = build_run_record(training)
    assert (record.status, record.reason, record.test, record.laps) == ("running", None, None, [lap])
