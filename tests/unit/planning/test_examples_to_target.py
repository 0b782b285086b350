import numpy as np
import pandas as pd
import pytest

from equipoise.planning.examples_to_target import find_turned_up_batches, fit_examples_curve
from equipoise.planning.setting_runs import censored_mean_log

LEAST, CRITICAL = 20_000.0, 300.0


def runs(batches, seeds=3, noise=0.1, draw=0, cap=np.inf, least=LEAST, critical=CRITICAL):
    rng = np.random.default_rng(draw)
    table = [(b, 0.1, s, least * (1 + b / critical) * np.exp(noise * rng.standard_normal()))
             for b in batches for s in range(seeds)]  # fmt: skip
    found = pd.DataFrame(table, columns=["global_batch", "lr", "seed", "examples"])
    return found.assign(reached=(found.examples <= cap).astype(int), examples=found.examples.clip(upper=cap))


def test_exact_runs_give_the_exact_curve():
    curve = fit_examples_curve(runs([32, 128, 512, 2048], noise=0.0))
    assert curve.critical_batch[0] == pytest.approx(CRITICAL, rel=1e-3)
    assert curve.min_examples[0] == pytest.approx(LEAST, rel=1e-3)
    assert curve.examples_at(1000) == pytest.approx(LEAST * (1 + 1000 / CRITICAL), rel=1e-3)
    assert curve.identifiable


def test_three_batches_and_three_seeds_find_a_critical_batch_between_them():
    near = [
        abs(fit_examples_curve(runs([50, 300, 2400], draw=draw)).critical_batch[0] / CRITICAL - 1) <= 0.25
        for draw in range(25)
    ]
    assert sum(near) >= 0.8 * len(near)


def test_intervals_hold_what_they_say():
    inside = []
    for draw in range(25):
        _, low, high = fit_examples_curve(runs([50, 150, 300, 900, 2400], draw=draw)).critical_batch
        inside.append(low <= CRITICAL <= high)
    assert 15 <= sum(inside) <= 25  # 20 expected


def test_batches_that_end_below_the_critical_one_are_not_enough():
    refused = [not fit_examples_curve(runs([20, 60, 140], noise=0.2, draw=draw)).identifiable for draw in range(10)]
    assert sum(refused) >= 8


def test_two_batches_are_not_enough_and_one_predicts_itself_alone():
    two = fit_examples_curve(runs([64, 512]))
    assert not two.identifiable
    assert two.examples_at(256) is not None
    one = fit_examples_curve(runs([64]))
    assert one.examples_at(64) == pytest.approx(LEAST * (1 + 64 / CRITICAL), rel=0.2)
    assert one.examples_at(128) is None
    assert "three global batches" in one.missing_measurements(128)


def test_runs_that_were_cut_off_count_as_more_than_their_cap():
    cut = runs([50, 300, 2400], seeds=8, cap=180_000)
    assert 0 < (cut.reached == 0).sum() < 8
    curve = fit_examples_curve(cut)
    truth = np.log(LEAST * (1 + 2400 / CRITICAL))
    dropped = np.log(cut[(cut.global_batch == 2400) & (cut.reached == 1)].examples).mean()
    assert dropped < curve.batch_summary.log_examples[2400]
    assert curve.batch_summary.log_examples[2400] == pytest.approx(truth, abs=0.1)


def test_a_mean_of_runs_that_all_reached_is_the_mean():
    table = runs([64], seeds=5)
    assert censored_mean_log(table, 0.1) == pytest.approx(np.log(table.examples).mean())
    assert censored_mean_log(table.assign(reached=0), 0.1) == np.inf


def test_each_batch_has_its_own_learning_rate():
    rates = []
    for batch, best in ((32, 0.1), (256, 0.4)):
        for lr in (0.05, 0.1, 0.2, 0.4, 0.8):
            worse = 1 + np.log2(lr / best) ** 2 / 4
            rates.append(runs([batch], noise=0.02).assign(lr=lr, examples=lambda t, w=worse: t.examples * w))
    curve = fit_examples_curve(pd.concat(rates))
    assert curve.batch_summary.lr.to_dict() == {32: 0.1, 256: 0.4}
    assert curve.lr_at(32 * np.sqrt(8)) == pytest.approx(0.2)


def test_small_batches_that_need_more_are_left_out_and_named():
    table = runs([8, 64, 300, 2400])
    table.loc[table.global_batch == 8, "examples"] *= 4
    curve = fit_examples_curve(table)
    assert curve.left_out_batches == [8]
    assert curve.critical_batch[0] == pytest.approx(CRITICAL, rel=0.4)
    assert curve.examples_at(8) > 3 * LEAST


def test_a_batch_that_does_not_train_is_named_and_not_predicted():
    table = runs([64, 300, 2400])
    table.loc[table.global_batch == 64, "reached"] = 0
    curve = fit_examples_curve(table)
    assert curve.left_out_batches == [64]
    assert curve.examples_at(64) is None
    assert "reaches the target" in curve.missing_measurements(64)


def test_noise_alone_turns_nothing_up():
    means = fit_examples_curve(runs([16, 32, 64, 128], noise=0.1)).batch_summary
    assert find_turned_up_batches(means) == []


def test_a_single_run_scatters_as_usual_where_nothing_was_repeated_and_as_measured_where_much_was():
    once = pd.DataFrame(
        [(b, 0.1, 0, 5000 * (1 + b / 300), 1) for b in (32, 128, 512)],
        columns=["global_batch", "lr", "seed", "examples", "reached"],
    )
    assert fit_examples_curve(once).seed_noise_at(32) == (pytest.approx(0.15), 3)
    rng = np.random.default_rng(0)
    own = {32: 0.05, 128: 0.2, 512: 0.05}
    rows = [
        (b, 0.1, s, 5000 * (1 + b / 300) * np.exp(own[b] * rng.standard_normal()), 1) for b in own for s in range(40)
    ]
    curve = fit_examples_curve(pd.DataFrame(rows, columns=once.columns))
    assert [curve.seed_noise_at(b)[0] for b in own] == pytest.approx([*own.values()], rel=0.3)
    assert curve.seed_noise_at(32)[1] > 40
    assert 0.05 < curve.seed_noise_at(64)[0] < 0.2  # not measured: as those that were, together


def test_runs_that_nothing_was_repeated_of_are_not_trusted_to_a_percent():
    once = fit_examples_curve(runs([32, 128, 512], seeds=1, noise=0.0))
    low, high = np.quantile(once.sample_examples(128), [0.1, 0.9])
    assert np.log(high / low) > 0.1
