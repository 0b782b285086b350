import pytest
import torch

from equipoise.bundle.engine_benchmark import EngineResult, benchmark_engines, select_engine

PICTURES = torch.randint(0, 256, (20, 1, 4, 4), dtype=torch.uint8, generator=torch.manual_seed(0))


def honest(pictures):
    logits = pictures.float().flatten(1)[:, :3]
    return logits, logits


def off(pictures):
    logits, features = honest(pictures)
    return logits * 1.001, features


def broken():
    raise RuntimeError("no compiler\nat all")


def result(engine, one, eight, agrees=True):
    return EngineResult(engine, {1: one, 8: eight}, 0.0, agrees)


def test_engines_are_compared_on_all_pictures_and_one_that_does_not_run_says_why():
    found = {
        one.engine: one
        for one in benchmark_engines({"eager": lambda: honest, "off": lambda: off, "no": broken}, honest, PICTURES)
    }
    assert found["eager"].agrees and found["eager"].error == 0
    assert not found["off"].agrees and found["off"].error == pytest.approx(1e-3, rel=1e-2)
    assert found["no"].seconds is None and found["no"].why_not.startswith("RuntimeError: no compiler")
    assert set(found["eager"].seconds) == {1, 8}


def test_the_fastest_that_agrees_and_is_never_slower_than_eager_wins():
    eager = result("eager", 2.0, 4.0)
    assert select_engine([eager, result("a", 1.0, 2.0), result("b", 0.1, 0.1, agrees=False)])[0] == "a"
    assert select_engine([eager, result("a", 0.1, 4.1)])[0] == "eager"
    name, why = select_engine([eager, result("a", 1.0, 3.0), result("b", 1.5, 1.0)])
    assert name == "b" and "0.75 at batch 1 and 0.25 at batch 8" in why


def test_an_export_that_answers_otherwise_than_the_model_is_refused():
    with pytest.raises(ValueError, match="does not predict what the model predicts"):
        select_engine([result("eager", 1.0, 1.0, agrees=False), result("a", 0.1, 0.1)])
