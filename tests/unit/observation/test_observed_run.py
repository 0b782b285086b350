"""Folder of an observed run, which belongs to its observer until that is closed."""

from equipoise.runs.folder import claim_run_folder
from tests.support.errors import raises_code
from tests.support.observed_loops import draw_batches, take_steps


def test_folder_is_claimed_until_the_observer_is_closed(observe, tmp_path):
    observer = observe()
    with raises_code("path-in-use"), claim_run_folder(tmp_path / "run", observer.config):
        raise AssertionError
    observer.close()
    with claim_run_folder(tmp_path / "run", observer.config):
        pass


def test_folder_with_a_record_is_refused(observe, tmp_path):
    observe().close()
    with raises_code("path-exists", tmp_path / "run"):
        observe()


def test_pause_of_an_observer_is_not_waiting_for_data(observe, model, optimizer):
    observer = observe()
    for is_paused in (False, True):
        take_steps(model, optimizer, draw_batches(1))
        if is_paused:
            observer.pause()
    take_steps(model, optimizer, draw_batches(1))
    names = [name for name, _, _ in observer.clock.timer.spans]
    assert names.count("data") == 1  # between the first two of three steps
