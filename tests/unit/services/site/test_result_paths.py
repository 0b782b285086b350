"""No name in a request leads out of the results folder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.errors import EquipoiseError
from services.site.result_paths import resolve_result_path


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("paths")
    (root / "secret").write_text("not for the site")
    results = root / "results"
    (results / "runs" / "first").mkdir(parents=True)
    (results / ".site").mkdir()
    (results / "away").symlink_to(root)
    (results / "near").symlink_to(results / "runs")
    (results / "circle").symlink_to(results / "circle")
    return results


@pytest.mark.parametrize("name", ["runs", "runs/first", "near/first"])
def test_a_name_below_the_results_is_its_path(results, name):
    assert resolve_result_path(results, name) == results / name


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            ".",
            "..",
            "../secret",
            "runs/../../secret",
            "/etc/passwd",
            "away/secret",
            "runs\0",
            ".site",
            "runs/.lock",
        ),
        *("a\nb", "~\\x", "x" * 2000, "x" * 300, "away/new", "circle", "circle/new"),
    ],
)
def test_a_name_that_leads_out_is_refused(results, name):
    with pytest.raises(EquipoiseError, match=r"^cannot use"):
        resolve_result_path(results, name, must_exist=False)


def test_a_name_of_nothing_is_refused_unless_it_is_to_be_made(results):
    with pytest.raises(EquipoiseError, match=r"^cannot find 'new'") as caught:
        resolve_result_path(results, "new")
    assert caught.value.code == "path-missing"
    assert resolve_result_path(results, "new/one", must_exist=False) == results / "new" / "one"


@given(st.lists(st.sampled_from(["..", ".", "", "runs", "away", "near", "secret", "\0", "/", "first", "..\\"])))
def test_no_path_of_any_name_lies_outside(results, parts):
    try:
        path = resolve_result_path(results, "/".join(parts), must_exist=False)
    except EquipoiseError:
        return
    assert results.resolve() in path.resolve().parents
