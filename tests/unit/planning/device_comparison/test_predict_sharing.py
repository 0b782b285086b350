"""Steps of several workers predicted from steps without an exchange and the exchange by itself."""

import numpy as np
import pytest

from equipoise.errors import EquipoiseError
from equipoise.planning.device_comparison.comparison_report import DeviceComparison
from equipoise.planning.device_comparison.predict_sharing import BACKWARD_SHARE, compare_steps
from tests.support.device_comparisons import BATCHES, EXCHANGE_SECONDS, build_comparison, build_turns, own_step_seconds


def test_predicted_step_is_the_part_of_a_worker_and_the_exchange():
    compared = compare_steps(BATCHES, build_turns(measured=False))
    for row in compared.rows:
        assert row.predicted.seconds == pytest.approx(own_step_seconds(row.batch // 2) + EXCHANGE_SECONDS)
        assert row.predicted.exchange_share == pytest.approx(EXCHANGE_SECONDS / row.predicted.seconds)
        assert row.one_seconds == pytest.approx(own_step_seconds(row.batch)) and row.measured is None
        assert row.shared_steps is row.predicted
    assert compared.measured_crossing is None and compared.predicted_crossing.outcome == "crosses"


def test_workers_that_slow_each_other_are_predicted_by_their_steps_beside_each_other():
    slower = {batch // 2: [1.5 * own_step_seconds(batch // 2)] * 3 for batch in BATCHES}
    row = compare_steps(BATCHES, build_turns(beside=slower)).rows[0]
    assert row.slowdown == pytest.approx(1.5)
    assert row.predicted.seconds == pytest.approx(1.5 * row.part_seconds + EXCHANGE_SECONDS)
    assert row.shared_steps is row.measured


def test_backward_pass_of_a_gpu_hides_all_but_the_last_bucket_as_far_as_it_lasts():
    last = EXCHANGE_SECONDS / 4
    compared = compare_steps(BATCHES, build_turns(is_hidden=True, last_bucket=[last] * 3))
    exposed = [row.predicted.exchange_seconds for row in compared.rows]
    parts = np.array([own_step_seconds(batch // 2) for batch in BATCHES])
    assert exposed == pytest.approx(np.maximum(last, EXCHANGE_SECONDS - BACKWARD_SHARE * parts).tolist())
    assert exposed[0] > exposed[-1] == pytest.approx(last)


def test_comparison_is_read_as_it_was_written_and_another_schema_is_refused():
    comparison = build_comparison()
    contents = comparison.to_json()
    assert DeviceComparison.from_json(contents) == comparison
    for damaged in (contents | {"schema": 2}, contents | {"nodes": 0}, []):
        with pytest.raises(EquipoiseError) as refused:
            DeviceComparison.from_json(damaged)
        assert refused.value.code == "file-damaged"
