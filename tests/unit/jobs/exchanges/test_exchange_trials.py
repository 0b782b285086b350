"""Trials with other ways of exchange: their options, records and order."""

from dataclasses import replace

import pandas as pd
import pytest

from equipoise.config import TrainConfig
from equipoise.planning.exchange_choice.exchange_bounds import bound_exchanges, select_survivors
from equipoise.planning.exchange_choice.trial_state import ExchangeTrial
from equipoise.planning.exchanges.training_options import name_exchange, replace_exchange
from equipoise.storage.atomic import write_json
from jobs.ray_tune.exchanges.exchange_tables import build_run_table
from jobs.ray_tune.exchanges.exchange_trials import (
    EXCHANGE_TRIAL_COLUMNS,
    ExchangeSearch,
    ExchangeSearchAdapter,
    ExchangeStatus,
    ExchangeTrials,
)
from jobs.ray_tune.trial_records import load_finished_trials, trial_file_stem
from tests.support.errors import raises_code
from tests.support.exchange_world import ExchangeWorld, fit_world
from tests.support.trial_records import build_record

BASE = TrainConfig(workload="digits", seed=5).with_defaults()


def build_trials(folder):
    return ExchangeTrials(base=BASE, folder=folder, workers_by_batch={64: 1, 256: 4}, slots=2, max_unsplit_batch=512)


def write_trial(folder, trial, **changes):
    """Write the record of a trial that ended into a folder."""
    record = replace(build_record(0.01, 64), config=trial, status="reached_target", examples_to_target=500.0, **changes)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{trial_file_stem(trial)}.json", record.to_json())


@pytest.mark.parametrize("name", ["", "bf16", "topk:0.01", "local:16", "diloco:4", "local:8/int8", "server", "full",
                                  "async:3"])  # fmt: skip
def test_options_of_training_make_the_exchange_that_they_are_named_by(name):
    assert name_exchange(replace_exchange(BASE, name)) == name
    assert name_exchange(replace_exchange(replace_exchange(BASE, "local:2"), name)) == name


def test_one_process_hosts_all_workers_of_a_trial_with_another_way_of_exchange(tmp_path):
    trials = build_trials(tmp_path)
    trial = trials.build_trial(ExchangeTrial("local:16/bf16", 4, 256, 0.1, 2))
    assert (trial.workers, trial.batch_size, trial.grad_accumulation, trial.seed) == (4, 64, 1, 7)
    assert (trial.sync, trial.compression, trial.lr) == ("local:16", "bf16", 0.1)
    exact = trials.build_trial(ExchangeTrial("", 4, 256, 0.1, 2))
    assert (exact.workers, exact.batch_size, exact.sync, exact.seed) == (1, 256, "step", 7)
    path = trials.record_path(ExchangeTrial("local:16/bf16", 4, 256, 0.1, 2))
    assert path == tmp_path / "exchanges" / "batch-256-lr-0.1-seed-7-workers-4-local-16-bf16.json"
    assert trials.record_path(ExchangeTrial("", 4, 256, 0.1, 2)) == tmp_path / "batch-256-lr-0.1-seed-7.json"


def test_records_of_both_kinds_are_read_again_and_never_mixed(tmp_path):
    exact, local = replace(BASE, batch_size=64), replace(BASE, workers=2, batch_size=32, sync="local:4")
    write_trial(tmp_path, exact)
    write_trial(tmp_path / "exchanges", local)
    assert [record.config for record in load_finished_trials(tmp_path, BASE)] == [exact]
    assert [r.config for r in load_finished_trials(tmp_path / "exchanges", BASE, with_exchanges=True)] == [local]
    for folder, with_exchanges, stranger in ((tmp_path, False, local), (tmp_path / "exchanges", True, exact)):
        write_trial(folder, stranger)
        with raises_code("run-mismatch", "holds another trial"):
            load_finished_trials(folder, BASE, with_exchanges=with_exchanges)


def test_table_of_runs_has_columns_on_the_exchange_only_where_there_are_others(tmp_path):
    write_trial(tmp_path, replace(BASE, batch_size=64))
    table = build_run_table(tmp_path, BASE, [64], with_exchanges=True)
    assert list(table) == ["global_batch", "lr", "seed", "examples", "reached"] and len(table) == 1
    write_trial(tmp_path / "exchanges", replace(BASE, workers=2, batch_size=32, sync="local:4"))
    assert table.equals(build_run_table(tmp_path, BASE, [64], with_exchanges=False))
    both = build_run_table(tmp_path, BASE, [64], with_exchanges=True)
    assert list(both)[5:] == ["exchange", "workers"] and both.exchange.tolist() == ["", "local:4"]
    assert both.workers.isna().tolist() == [True, False] and both.workers.iloc[1] == 2
    assert build_run_table(tmp_path, BASE, [128], with_exchanges=True).empty


@pytest.fixture(scope="module")
def search():
    fits, costs, _ = fit_world(ExchangeWorld())
    survivors = select_survivors(bound_exchanges(fits, costs), are_named=True)
    assert {bound.is_sync for bound in survivors} == {True, False}
    return ExchangeSearch(fits, costs, survivors, [64, 128, 256, 512])


def build_runs(rows=()):
    return pd.DataFrame(list(rows), columns=EXCHANGE_TRIAL_COLUMNS).astype({"momentum": float})


def exact_rows(search):
    batches = {bound.global_batch for bound in search.survivors}
    return [("", 0, batch, 0.1, seed, None, 20_000.0, 1) for batch in batches for seed in range(2)]


def test_seeds_wait_for_the_learning_rates(search):
    runs = build_runs(exact_rows(search))
    rates = []
    while trial := search.suggest(runs, rates):
        rates.append(trial)
    assert len(rates) >= 3 and {trial.seed for trial in rates} == {0}
    assert search.depends_on_running(runs, rates) and not search.depends_on_running(runs, [])


def test_no_more_trials_are_added_than_allowed(search):
    search = ExchangeSearch(search.fits, search.costs, search.survivors, search.batches)
    runs = build_runs(exact_rows(search))
    for _ in range(50):
        if (trial := search.suggest(runs)) is None:
            break
        runs = pd.concat([runs, build_runs([(*trial, 21_000.0 + 10 * trial.seed, 1)])], ignore_index=True)
    else:
        pytest.fail("the search does not end")
    assert 3 <= len(runs) - len(exact_rows(search)) <= 12


def test_trial_that_needs_far_too_many_examples_is_hopeless(search, tmp_path):
    adapter = ExchangeSearchAdapter(search, build_trials(tmp_path), ExchangeStatus())
    bound = search.survivors[0]
    trial = ExchangeTrial(bound.exchange, bound.workers, bound.global_batch, 0.1, 0)
    exact = search.fits.curve.examples_at(bound.global_batch)
    assert not adapter.is_hopeless(trial, exact) and adapter.is_hopeless(trial, 2 * bound.max_speedup * exact)
    assert not adapter.is_hopeless(trial._replace(exchange=""), 1e12)


def test_finished_trials_are_told_once(search, tmp_path, capsys):
    trials = build_trials(tmp_path)
    for seed in (5, 6):
        write_trial(tmp_path / "exchanges", replace(BASE, workers=4, batch_size=64, sync="local:4", seed=seed))
    adapter = ExchangeSearchAdapter(search, trials, ExchangeStatus())
    assert adapter.finished_trials.seed.tolist() == [0, 1]
    for _ in range(2):
        adapter.sweep_status.show(adapter.finished_trials, 0, [])
    assert capsys.readouterr().out.count("local:4, global batch 256 at lr 0.05, seed") == 2


def test_asynchronous_trials_may_have_a_momentum_of_their_own(tmp_path):
    trials = build_trials(tmp_path)
    trial = trials.build_trial(ExchangeTrial("async:3/servers:2", 4, 256, 0.1, 2, 0.0))
    assert (trial.sync, trial.servers, trial.momentum, trial.workers) == ("async:3", 2, 0.0, 4)
    usual = trials.build_trial(ExchangeTrial("async:3/servers:2", 4, 256, 0.1, 2))
    assert usual.momentum == BASE.momentum and trial_file_stem(usual) != trial_file_stem(trial)
    for config in (trial, usual, replace_exchange(replace(BASE, all_reduce="ring"), "server")):
        assert replace_exchange(config, name_exchange(config)) == config
    for config in (trial, usual):
        write_trial(tmp_path / "exchanges", config)
    write_trial(tmp_path, replace(BASE, batch_size=256))
    table = build_run_table(tmp_path, BASE, [256], with_exchanges=True)
    assert table.exchange.tolist() == ["", *["async:3/servers:2"] * 2] and sorted(table.momentum.dropna()) == [0.0]
    assert table.momentum.isna().sum() == 2
    write_trial(tmp_path / "exchanges", replace(BASE, workers=2, batch_size=128, sync="local:2", momentum=0.0))
    with raises_code("run-mismatch", "holds another trial"):
        load_finished_trials(tmp_path / "exchanges", BASE, with_exchanges=True)


def test_sums_of_a_sweep_by_another_algorithm_are_those_of_servers_in_their_trials(tmp_path):
    base = replace(BASE, all_reduce="ring")
    trials = replace(build_trials(tmp_path), base=base)
    config = trials.build_trial(ExchangeTrial("async:2", 4, 256, 0.1, 0))
    assert config.all_reduce == "backend"
    write_trial(tmp_path / "exchanges", config)
    assert len(load_finished_trials(tmp_path / "exchanges", base, with_exchanges=True)) == 1
