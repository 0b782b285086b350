"""The section of a sweep's page on its search, in plain words."""

from dataclasses import replace

from dashboards.experiments import load_experiment
from dashboards.panels.experiments.search_section import build_search_section, estimate_saved_seconds
from dashboards.reports import tradeoff_page
from equipoise.planning.search_status.search_progress import SearchedTrial, SearchProgress, SettingStanding
from equipoise.storage.atomic import write_json
from tests.support.sweep_folders import write_sweep_folder
from tests.unit.dashboards.test_training_run import record

BEST = SettingStanding(global_batch=128, lr=0.1, seeds=3, seconds=12.0, log_error=0.1, is_rival=False)
RIVAL = replace(BEST, global_batch=256, seconds=12.5, seeds=1, is_rival=True)
LOST = replace(BEST, global_batch=512, seconds=None, log_error=None)
NEXT = SearchedTrial(global_batch=256, lr=0.1, seed=1, stage="seed")
PROGRESS = SearchProgress(
    finished=7, running=(NEXT,), next_trials=(replace(NEXT, seed=2),), standings=(BEST, RIVAL, LOST)
)


def test_a_search_says_what_it_tries_and_why():
    section = build_search_section(PROGRESS, [], is_finished=False)
    assert section.title == "What is tried now, and why"
    assert "256 at lr 0.1 may still be as fast. The next trials would tell them apart." in section.paragraphs[0]
    tables = {part.name: part for part in section.parts if part.kind == "table"}
    assert [*tables] == ["running-trials", "next-trials", "standings"]
    assert tables["running-trials"].rows[0][3].startswith("another run of the best setting or a rival")
    assert [row[4] for row in tables["standings"].rows] == ["best so far", "may still win", "clearly slower"]
    assert tables["standings"].rows[0][3].text == "12 (11 to 14) s"
    assert tables["standings"].rows[2][3].text == "target not reached"


def test_a_search_that_has_ended_says_how_sure_it_was():
    sure = replace(PROGRESS, standings=(BEST, replace(RIVAL, is_rival=False)))
    section = build_search_section(sure, [], is_finished=True)
    assert section.title == "How sure the search was"
    assert section.paragraphs[0].endswith("Every other setting that was tried is clearly slower.")
    assert [part.name for part in section.parts] == ["search-facts", "standings"]


def test_a_pruned_trial_saves_the_rest_of_its_examples():
    seen = record().laps[-1].seen
    pruned = replace(record(), status="pruned", config=replace(record().config, max_examples=3 * seen))
    assert estimate_saved_seconds(pruned) == 2 * pruned.seconds
    assert estimate_saved_seconds(replace(pruned, laps=[])) == 0.0
    facts = build_search_section(PROGRESS, [pruned, record()], is_finished=False).parts[0].facts
    assert facts["pruned"].startswith("1 trial") and facts["saved by pruning"].startswith("up to ")


def test_the_page_of_a_sweep_shows_its_search(tmp_path):
    folder = write_sweep_folder(tmp_path / "sweep")
    titles = [section.title for section in tradeoff_page(load_experiment(folder).content, "sweep").sections]
    assert "How sure the search was" not in titles
    write_json(folder / "search.json", PROGRESS.to_json())
    titles = [section.title for section in tradeoff_page(load_experiment(folder).content, "sweep").sections]
    assert "How sure the search was" in titles
    (folder / "plan.json").unlink()
    (folder / "statistical.csv").unlink()  # as while its trials run
    titles = [section.title for section in tradeoff_page(load_experiment(folder).content, "sweep").sections]
    assert titles[0] == "What is tried now, and why"


def test_a_damaged_search_file_is_told_as_a_problem(tmp_path):
    folder = write_sweep_folder(tmp_path / "sweep")
    (folder / "search.json").write_text('{"finished": -1}')
    assert "search.json" in load_experiment(folder).problem
