"""Models, options and folders that an observer refuses, in one sentence and without a trace."""

import torch

import equipoise
from tests.support.errors import raises_code
from tests.support.observed_loops import BATCH, build_small_model, draw_batches, take_steps


def test_two_observers_of_a_model_are_refused_until_the_first_is_closed(observe, model, optimizer, tmp_path):
    observer = observe()
    with raises_code("loop-unobservable", "twice"):
        equipoise.observe(model, optimizer, batch_size=BATCH, out=tmp_path / "other")
    observer.close()
    equipoise.observe(model, optimizer, batch_size=BATCH, out=tmp_path / "other").close()


def test_compiled_model_is_the_one_inside(observe, model, optimizer, tmp_path):
    observer = observe()
    compiled = torch.compile(model, backend="eager")
    with raises_code("loop-unobservable", "Sequential twice"):
        equipoise.observe(compiled, optimizer, batch_size=BATCH, out=tmp_path / "other")
    observer.close()
    with equipoise.observe(compiled, optimizer, batch_size=BATCH, out=tmp_path / "other") as other:
        take_steps(compiled, optimizer, draw_batches(12))
    assert (other.config.name, other.steps) == ("Sequential", 12)


def test_model_that_cannot_be_trained_is_refused(model, optimizer, tmp_path):
    other = build_small_model()
    with raises_code("loop-unobservable", "holds none"):
        equipoise.observe(other, optimizer, batch_size=BATCH, out=tmp_path / "run")
    with raises_code("loop-unobservable", "requires a gradient"):
        equipoise.observe(model.requires_grad_(False), optimizer, batch_size=BATCH, out=tmp_path / "run")
    with raises_code("loop-unobservable", "optimizer"):
        equipoise.observe(model, None, batch_size=BATCH, out=tmp_path / "run")
    with raises_code("loop-unobservable", "function"):
        equipoise.observe(take_steps, optimizer, batch_size=BATCH, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_refused_options_leave_the_model_free(observe, model, optimizer, tmp_path):
    with raises_code("option-range", "batch_size"):
        equipoise.observe(model, optimizer, batch_size=0, out=tmp_path / "run")
    with raises_code("option-range", "lap_steps"):
        equipoise.observe(model, optimizer, batch_size=1, lap_steps=0, out=tmp_path / "run")
    with raises_code("path-kind"):
        equipoise.observe(model, optimizer, batch_size=1, out="s3://bucket/run")
    observe()


def test_folder_with_a_record_is_refused(observe, model, optimizer, tmp_path):
    observe().close()
    with raises_code("path-exists", tmp_path / "run"):
        observe()


def test_folder_of_another_observer_is_refused(observe, tmp_path):
    observe()
    other = build_small_model()
    with raises_code("path-in-use", tmp_path / "run"):
        equipoise.observe(other, torch.optim.SGD(other.parameters(), lr=0.1), batch_size=BATCH, out=tmp_path / "run")
