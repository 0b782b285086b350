"""Experiments side by side: settings that differ, differences of results, and curves."""

import pytest

from equipoise.errors import EquipoiseError
from services.site.experiments.comparison import build_curve_panel, compare_experiments, load_compared, select_compared
from services.site.experiments.index_queries import find_row
from services.site.experiments.record_index import RecordIndex
from tests.support.experiment_folders import write_results


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    root = write_results(tmp_path_factory.mktemp("results"))
    index = RecordIndex(root, root / ".site")
    index.update_now()
    return lambda *paths: [load_compared(root, find_row(index.connect(), path)) for path in paths]


def test_settings_that_differ_are_told_from_equal_ones(load):
    comparison = compare_experiments(load("first", "deep/second"))
    assert {"lr", "seed"} <= {row.name for row in comparison.different_settings}
    equal = {row.name for row in comparison.equal_settings}
    assert {"workload", "momentum", "max examples"} <= equal  # options that the table does not show, too
    assert comparison.names == ("first", "deep/second")


def test_results_have_differences_from_the_first_experiment(load):
    first, second = load("first", "sweep")
    results = {row.name: row for row in compare_experiments([first, second]).results}
    seconds = results["training time"].values
    assert seconds[0].difference is None
    assert seconds[1].difference == pytest.approx(second.row.values["seconds"] - first.row.values["seconds"])
    assert seconds[1].share == pytest.approx(seconds[1].difference / first.row.values["seconds"])
    assert results["test metric"].values[1].difference is None  # a sweep has none


def test_curves_of_runs_and_trials_lie_in_one_figure(load):
    runs = load("first", "deep/second", "sweep/trials/batch-32-lr-0.05-seed-0")
    panel = build_curve_panel(runs)
    assert [trace.name for trace in panel.figure.data] == [run.row.path for run in runs]
    mixed = build_curve_panel(load("first", "sweep"))
    assert len(mixed.figure.data) == 1 and "Left out, because their axes are others: sweep" in mixed.caption


def test_what_cannot_be_read_is_compared_by_its_row_alone(load):
    broken, run = load("broken", "first")
    comparison = compare_experiments([broken, run])
    assert broken.content is None and any(row.differs for row in comparison.results)
    assert build_curve_panel([broken]) is None


@pytest.mark.parametrize(
    ("paths", "count"), [(["a", "a"], 1), ([], 0), (list("abcdefg"), 7), (list(map(str, range(25))), 25)]
)
def test_too_few_and_too_many_are_refused(paths, count):
    with pytest.raises(EquipoiseError, match=f"cannot compare {count} experiments: it takes 2 to 6"):
        select_compared(paths)


def test_each_experiment_is_compared_once():
    assert select_compared(["b", "a", "b"]) == ["b", "a"]
    assert len(select_compared("abcdef")) == 6
