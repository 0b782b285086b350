from dataclasses import replace

import pytest

from dashboards.experiments import load_experiment
from dashboards.page import NumberCell, render_html
from dashboards.panels.training_run import describe_result, laps_figure, laps_table, run_facts
from dashboards.reports import build_page, run_page
from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.runs.misclassified import MisclassifiedImage, write_misclassified
from equipoise.runs.record import ClassCount, Lap, Record
from equipoise.runs.target import Target
from equipoise.storage.atomic import write_json


def record():
    laps = [
        Lap(
            step=10 * i,
            steps=10,
            seen=100 * i,
            examples=100,
            workers=2,
            lr=0.1,
            loss=2 / i,
            seconds=0.05,
            data_seconds=0.005,
            compute_seconds=0.03,
            exchange_seconds=0.01,
            local_norm=14,  # together with total_norm: |G|^2 = 4, tr(Sigma) = 80
            total_norm=9,
            local_batch=8,
            total_batch=16,
            draws=10,
            metric=i / 5 if i % 2 == 0 else None,
        )
        for i in range(1, 6)
    ]
    facts = {"status": "max_examples", "target": 0.9, "examples_to_target": None, "test": 0.8}
    return Record(config=TrainConfig(workload="digits").with_defaults(), machine=HardwareFacts(), laps=laps, **facts)


def test_table_holds_each_lap_and_its_noise_scale():
    table = laps_table(record())
    assert table.seen.tolist() == [100, 200, 300, 400, 500]
    assert table.noise.tolist() == pytest.approx([20] * 5)


def test_figure_draws_the_values_of_the_table():
    table = laps_table(record())
    traces = {trace.name: trace for trace in laps_figure(table, Target(value=0.9)).data}
    assert list(traces["metric, validation"].x) == [200, 400]
    assert list(traces["compute"].y) == pytest.approx([3] * 5)  # ms per step
    assert list(traces["noise scale"].y) == pytest.approx([20] * 5)


def test_page_calls_the_metric_by_its_name():
    run = replace(record(), metric_name="mAP")
    page = run_page(run)
    assert page.lead.endswith("target at least 0.9 mAP.")
    assert run_facts(run)["test mAP"] == "0.8"
    assert describe_result(run).startswith("Did not reach the target of at least 0.9 mAP: the best mAP was 0.8;")
    figure = laps_figure(laps_table(run), run.goal)
    assert "mAP, validation" in {trace.name for trace in figure.data}
    assert "metric" not in {axis.title.text for axis in figure.select_yaxes()}
    assert "mAP" in page.sections[0].parts[1].data_table.columns


def test_laps_without_norms_have_no_noise_scale():
    run = record()
    laps = [Lap(**{**vars(lap), "draws": 0, "local_norm": None, "total_norm": None}) for lap in run.laps]
    table = laps_table(Record(**{**vars(run), "laps": laps}))
    assert table.noise.isna().all()
    laps_figure(table, Target(value=0.9))


def test_run_without_laps_has_a_page():
    empty = replace(record(), laps=[])
    assert "nothing to draw" in render_html(run_page(empty))
    laps_figure(laps_table(empty), Target(value=0.9))


def test_page_begins_with_the_result_of_the_run():
    missed = describe_result(record())
    assert missed == (
        "Did not reach the target of at least 0.9: the best metric was 0.8;"
        " the time of a step: computing 67%, exchanging gradients 22%, loading data 11%."
    )
    assert missed in run_page(record()).sections[0].paragraphs
    reached = describe_result(replace(record(), examples_to_target=300.0))
    assert reached.startswith("Reached the target of at least 0.9 after 300 examples, in 150 ms of training;")


def test_run_without_evaluation_or_exchange_has_a_result():
    laps = [replace(lap, metric=None, exchange_seconds=0.0, data_seconds=0.0) for lap in record().laps]
    result = describe_result(replace(record(), laps=laps, status="failed", reason="the loss is not finite"))
    assert "before its first evaluation (failed: the loss is not finite)" in result
    assert result.endswith("the time of a step: computing 100%.")
    assert "time of a step" not in describe_result(replace(record(), laps=[]))


def test_lines_differ_in_colour():
    lines = [trace for trace in laps_figure(laps_table(record()), Target(value=0.9)).data if trace.type == "scatter"]
    assert len({line.line.color for line in lines}) == len(lines) == 4


def test_page_shows_the_accuracy_by_class_and_images_that_are_wrong():
    counts = (ClassCount(name="cat", images=10, correct=9), ClassCount(name="dog", images=8, correct=4))
    misclassified = [MisclassifiedImage(index=2, label="dog", predicted="cat", png=b"\x89PNG")]
    section = run_page(replace(record(), test_classes=counts), misclassified).sections[1]
    table, gallery = section.parts
    assert [*table.rows] == [
        ("dog", 8, 4, NumberCell(0.5, "50% (22% to 78%)")),  # 95 % Wilson intervals
        ("cat", 10, 9, NumberCell(0.9, "90% (60% to 98%)")),
    ]
    assert gallery.captioned_pngs == [(b"\x89PNG", "dog, taken for cat")] and "the first 1 of 5" in gallery.caption
    assert "dog, taken for cat" in render_html(run_page(replace(record(), test_classes=counts), misclassified))
    assert len(run_page(record()).sections) == 1  # nothing was measured


def test_test_accuracy_has_the_interval_of_its_count():
    counts = (ClassCount(name="cat", images=600, correct=584), ClassCount(name="dog", images=400, correct=390))
    assert run_facts(replace(record(), test=0.974, test_classes=counts))["test metric"] == "0.974 (0.962 to 0.982)"
    assert run_facts(replace(record(), test=0.974))["test metric"] == "0.974"  # another metric has no such interval


def test_page_built_from_a_folder_shows_the_images_beside_the_record(tmp_path):
    counts = (ClassCount(name="dog", images=8, correct=4),)
    write_json(tmp_path / "record.json", replace(record(), test_classes=counts).to_json())
    write_misclassified(tmp_path, [MisclassifiedImage(index=2, label="dog", predicted="cat", png=b"\x89PNG")])
    page = build_page(load_experiment(tmp_path), "run")
    assert [part.name for part in page.sections[1].parts] == ["classes", "misclassified"]


def test_facts_show_the_noise_scale_in_the_unit_of_the_workload_too():
    assert run_facts(record())["noise scale"] == "about 20 examples"
    of_tokens = replace(record(), unit="tokens", units_per_example=64)
    assert run_facts(of_tokens)["noise scale"] == "about 20 examples (1,280 tokens)"


def test_facts_show_what_workers_hold_and_the_peak_of_their_memory():
    whole = record()
    assert not {"sharding", "recomputed", "peak memory of a worker"} & run_facts(whole).keys()
    config = replace(whole.config, workers=2, sharding="full", recompute=True)
    peaks = [None, 3 << 20, 2 << 20, None, None]
    laps = [replace(lap, peak_bytes=peak) for lap, peak in zip(whole.laps, peaks, strict=True)]
    facts = run_facts(replace(whole, config=config, laps=laps))
    assert (facts["sharding"], facts["recomputed"]) == ("full", "activations of blocks")
    assert facts["peak memory of a worker"] == "3 MiB"
