"""Jobs of the site in their file: one job per folder, whoever asks and how often."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from equipoise.errors import EquipoiseError
from services.site.jobs_on_ray.job_store import BEGIN_WRITING, JobConflict, JobStore, SubmittedJob
from tests.support.errors import raises_code


def build_job(number, out="/r/first", **facts):
    return SubmittedJob(
        id=f"train-{number}",
        command="train",
        arguments=("--out", out, "--name", "a'b"),
        out=out,
        folder="/",
        started_by="Ada",
        submitted=float(number),
        **facts,
    )


@pytest.fixture
def store(tmp_path):
    return JobStore(tmp_path / "jobs.sqlite")


def test_a_job_is_read_as_it_was_noted_by_another_site_too(store):
    store.claim_job(build_job(1), "first")
    assert JobStore(store.file).find_job("train-1") == build_job(1)
    with pytest.raises(EquipoiseError, match="cannot find the job 'train-2'"):
        store.find_job("train-2")


@pytest.mark.parametrize("out", ["/r/first", "/r/first/inside", "/r"])
def test_a_folder_that_a_job_writes_to_is_refused_to_another(store, out):
    store.claim_job(build_job(1), "first")
    with pytest.raises(JobConflict, match="train by Ada writes there; open its job train-1") as caught:
        store.claim_job(build_job(2, out), "first")
    assert caught.value.other.id == "train-1" and store.count_jobs() == 1
    store.claim_job(build_job(3, "/r/firstly"), "firstly")


def test_of_many_who_start_the_same_job_one_does(store):
    def claim(number):
        try:
            store.claim_job(build_job(number), "first")
        except JobConflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(claim, range(24))) == 1


def test_a_job_that_has_ended_leaves_its_folder_to_the_next(store):
    store.claim_job(build_job(1), "first")
    store.set_status(build_job(1), "failed", ended=9.0, exit_status=2)
    store.claim_job(build_job(2), "first")
    assert [job.id for job in store.list_active_jobs()] == ["train-2"]
    assert [job.id for job in store.list_jobs_of_folder("/r/first")] == ["train-2", "train-1"]
    assert store.find_job("train-1").exit_status == 2


def test_older_news_do_not_overwrite_newer_ones(store):
    store.claim_job(build_job(1), "first")
    waiting = store.set_status(build_job(1), "waiting")
    assert store.mark_stopping("train-1").status == "stopping"
    assert store.set_status(waiting, "running").status == "stopping"  # Ray was asked before the job was to stop
    ended = store.set_status(store.find_job("train-1"), "stopped", ended=9.0)
    assert store.mark_stopping("train-1") == ended == store.set_status(build_job(1), "waiting")


def test_jobs_are_listed_from_the_newest_page_by_page(store):
    for number in range(5):
        store.claim_job(build_job(number, f"/r/{number}"), "")
    assert [job.id for job in store.list_jobs(2, 2)] == ["train-2", "train-1"]


def test_a_damaged_file_is_named_and_kept(store):
    store.file.write_bytes(b"no database" * 500)
    with raises_code("file-damaged", "jobs.sqlite", "move it away"):
        JobStore(store.file)
    assert store.file.stat().st_size == 5500


def test_jobs_are_read_while_another_site_writes(store):
    store.claim_job(build_job(1), "first")
    with JobStore(store.file).connect(BEGIN_WRITING) as writing:
        writing.execute("UPDATE jobs SET status = 'running'")
        assert store.find_job("train-1").status == "submitting"
    assert store.find_job("train-1").status == "running"
