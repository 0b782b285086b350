import time

import pytest
import torch

from equipoise.bundle.engine_benchmark import (
    benchmark_engines,
    compare_classes,
    compare_values,
    measure_seconds_per_call,
    select_engine,
)
from equipoise.bundle.engine_results import EngineResult
from tests.support.errors import raises_code

IMAGES = torch.randint(0, 256, (20, 1, 4, 4), dtype=torch.uint8, generator=torch.manual_seed(0))


def predict_exactly(images):
    logits = images.float().flatten(1)[:, :3]
    return logits, logits


def predict_inexactly(images):
    logits, features = predict_exactly(images)
    return logits * 1.001, features


def fail_to_load():
    raise RuntimeError("no compiler\nat all")


def build_result(engine, batch_1_seconds, batch_8_seconds, agrees=True):
    return EngineResult(engine, {1: batch_1_seconds, 8: batch_8_seconds}, 0.0, agrees)


def test_engines_are_compared_on_all_images_and_a_failing_one_gives_the_reason():
    results = {
        result.engine: result
        for result in benchmark_engines(
            {"eager": lambda: predict_exactly, "off": lambda: predict_inexactly, "no": fail_to_load},
            predict_exactly,
            [IMAGES],
        )
    }
    assert results["eager"].agrees and results["eager"].error == 0
    assert not results["off"].agrees and results["off"].error == pytest.approx(1e-3, rel=1e-2)
    assert results["no"].seconds is None and results["no"].why_not.startswith("RuntimeError: no compiler")
    assert set(results["eager"].seconds) == {1, 8}


def test_fastest_agreeing_engine_that_is_never_slower_than_eager_is_selected():
    eager = build_result("eager", 2.0, 4.0)
    assert select_engine([eager, build_result("a", 1.0, 2.0), build_result("b", 0.1, 0.1, agrees=False)])[0] == "a"
    assert select_engine([eager, build_result("a", 0.1, 4.1)])[0] == "eager"
    name, reason = select_engine([eager, build_result("a", 1.0, 3.0), build_result("b", 1.5, 1.0)])
    assert name == "b" and "0.75 at batch 1 and 0.25 at batch 8" in reason


def test_export_that_disagrees_with_the_model_is_refused():
    with raises_code("export-failed"):
        select_engine([build_result("eager", 1.0, 1.0, agrees=False), build_result("a", 0.1, 0.1)])


@pytest.mark.parametrize(
    ("error", "words"), [(7.3e-4, "a relative error of 0.00073, where at most 1e-05"), (5e-7, "other classes or boxes")]
)
def test_refusal_says_what_differs(error, words):
    with raises_code("export-failed", words):
        select_engine([EngineResult("eager", {1: 1.0, 8: 1.0}, error, False)])


def test_seconds_per_call_are_the_mean_over_calls_of_the_engine():
    sizes = []

    def sleep(pictures):
        sizes.append(len(pictures))
        time.sleep(0.01)
        return pictures, pictures

    seconds = measure_seconds_per_call(sleep, [torch.zeros(3, 1, 2, 2)], 5)
    assert sizes == [3] * 5 and seconds >= 0.01


def test_engine_that_is_as_fast_as_eager_at_one_batch_size_may_be_selected():
    eager = build_result("eager", 2.0, 4.0)
    assert select_engine([eager, build_result("a", 2.0, 3.9)])[0] == "a"
    assert select_engine([eager, build_result("a", 2.0, 4.0)])[0] == "eager"  # the first of two alike


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (1 + 0.9e-5, True), (1 + 1.06e-5, False)])
def test_outputs_may_differ_by_a_hundred_thousandth_of_the_largest(factor, agrees):
    expected = [torch.tensor([[4.0, 1.0]]), torch.zeros(1, 3)]
    outputs = [torch.tensor([[4.0 * factor, 1.0]], dtype=torch.float64), torch.zeros(1, 3)]
    assert compare_classes(expected, outputs)[1] == compare_values(expected, outputs)[1] == agrees


def test_labels_count_for_classes_alone():
    expected, outputs = [torch.tensor([[1.0, 1.0 + 1e-6]])], [torch.tensor([[1.0 + 1e-6, 1.0]])]
    assert not compare_classes(expected, outputs)[1]
    assert compare_values(expected, outputs)[1]


def test_engines_run_on_one_thread_and_the_number_of_threads_is_restored():
    threads, before = [], torch.get_num_threads()

    def predict(images):
        threads.append(torch.get_num_threads())
        return predict_exactly(images)

    def fail_at_length():
        raise ValueError(" " + "x" * 300)

    torch.set_num_threads(2)
    try:
        first, failed = benchmark_engines({"eager": lambda: predict, "no": fail_at_length}, predict_exactly, [IMAGES])
        assert torch.get_num_threads() == 2 and set(threads) == {1}
    finally:
        torch.set_num_threads(before)
    assert first.agrees and not failed.agrees and failed.error is None
    assert failed.why_not == f"ValueError: {'x' * 200}"
