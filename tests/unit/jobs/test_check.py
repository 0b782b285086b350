"""`equipoise check` of tables and of texts: verdicts, pages, and what it refuses in one sentence."""

import json

import numpy as np
import pandas as pd
import pytest

from equipoise.config import TrainConfig
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from equipoise.training.loop import Training
from jobs.check import main
from tests.support.bundles import publish_run, train_table, write_run_folder

pytestmark = pytest.mark.slow


def draw_orders(rows, seed, shift=0.0, cities=("Bern", "Graz")):
    """Return a table of a number, a city with gaps, and a price that depends on both."""
    rng = np.random.default_rng(seed)
    size, city = rng.normal(size=rows) + shift, rng.choice(cities, rows)
    price = 3 * size + 2 * (city == "Bern") + rng.normal(0, 0.3, rows)
    return pd.DataFrame({"size": size, "city": city, "price": price})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checks")


@pytest.fixture(scope="module")
def price_bundle(folder):
    run = train_table(folder / "prices", draw_orders(3000, 0), "price", 8000)
    return publish_run(run, folder / "price-bundle", drift=True)


@pytest.fixture(scope="module")
def text_bundle(folder):
    (folder / "rhymes.txt").write_text(write_rhymes(100_000, 1))
    config = TrainConfig(workload="text", data=str(folder / "rhymes.txt"), batch_size=16, max_examples=512)
    training = Training(config)
    for _ in training.laps():
        pass
    return publish_run(write_run_folder(training, folder / "text"), folder / "text-bundle", drift=True)


def write_rhymes(length, seed, words=("the", "cat", "sat", "on", "a", "mat", "and", "ate", "it")):
    """Return words in random order, as a text of so many characters."""
    return " ".join(np.random.default_rng(seed).choice(words, length))[:length]


@pytest.fixture
def check(capsys):
    """Run the command on a bundle and data; return its status and what it printed."""

    def run(bundle, data, *options):
        status = main(["--bundle", str(bundle), "--data", str(data), *map(str, options)])
        return status, capsys.readouterr()

    return run


def test_rows_of_a_file_are_compared_with_the_reference(price_bundle, check, tmp_path):
    same, moved = tmp_path / "same.csv", tmp_path / "moved.parquet"
    draw_orders(400, 1).to_csv(same, index=False)
    draw_orders(400, 2, shift=0.8).drop(columns="price").to_parquet(moved)
    status, output = check(price_bundle, same, "--json")
    verdict = DatasetVerdict.from_json(json.loads(output.out))
    assert (status, verdict.state, verdict.kind, verdict.images) == (0, "ok", "table", 400)
    error = verdict.measured
    assert error.examples == 400 and error.value == pytest.approx(error.published, rel=0.3) and error.value < 1
    status, output = check(price_bundle, moved, "--out", tmp_path / "out")
    assert status == 3 and output.out.startswith("drift: column size lies 0.")
    assert "labelled" not in output.out and "accuracy" not in output.out
    verdict = DatasetVerdict.from_json(json.loads((tmp_path / "out" / "verdict.json").read_text()))
    assert verdict.cause == "column size" and verdict.effects[0].value == pytest.approx(0.8, abs=0.3)
    page = (tmp_path / "out" / "drift.html").read_text()
    assert "Rows that changed most" in page and f">{int(verdict.moved[0])}<" in page.replace(" ", "").replace("\n", "")


def test_new_categories_and_missing_values_are_drift(price_bundle, check, tmp_path):
    table = draw_orders(300, 3, cities=("Bern", "Genf"))
    table.loc[::4, "size"] = np.nan
    table.to_csv(tmp_path / "table.csv", index=False)
    status, output = check(price_bundle, tmp_path / "table.csv")
    assert status == 3
    assert "column size has no value in 25% of the rows, 0% in the reference" in output.out
    assert "column city has a rare or new value in" in output.out


def test_few_rows_allow_no_verdict(price_bundle, check, tmp_path):
    draw_orders(20, 4).to_csv(tmp_path / "table.csv", index=False)
    status, output = check(price_bundle, tmp_path / "table.csv")
    assert status == 4 and output.out.startswith("unknown: 20 rows were given")


def test_texts_are_compared_in_pieces_of_the_window(text_bundle, check, tmp_path):
    (tmp_path / "same").mkdir()
    for index in range(3):
        (tmp_path / "same" / f"{index}.txt").write_text(write_rhymes(1500, 10 + index))
    status, output = check(text_bundle, tmp_path / "same", "--json")
    verdict = DatasetVerdict.from_json(json.loads(output.out))
    assert (status, verdict.state, verdict.kind) == (0, "ok", "text")
    assert verdict.images == 3 * (1500 // verdict.piece_characters)
    (tmp_path / "other.txt").write_text(write_rhymes(4000, 20, words=("tea", "tame", "meat", "sonnet", "daemon")))
    status, output = check(text_bundle, tmp_path / "other.txt", "--out", tmp_path / "out")
    assert status == 3 and output.out.startswith("drift: the nats per token are ")
    page = (tmp_path / "out" / "drift.html").read_text()
    assert "Texts that changed most" in page and "other.txt" in page and "Classes" not in page


def test_short_texts_count_as_one_piece_each(text_bundle, check, tmp_path):
    for index in range(40):
        (tmp_path / f"{index}.txt").write_text(write_rhymes(10 + index, index))
    status, output = check(text_bundle, tmp_path, "--json")
    assert (status, json.loads(output.out)["images"]) == (0, 40)


def write_wrong_data(folder):
    """Write a file for each kind of wrong data."""
    orders = draw_orders(50, 5)
    orders.drop(columns="size").rename(columns={"price": "Size"}).to_csv(folder / "lacks.csv", index=False)
    orders.assign(size="large").to_csv(folder / "texts.csv", index=False)
    orders.assign(size="2026-11-25").to_csv(folder / "dates.csv", index=False)
    orders.head(0).to_csv(folder / "header.csv", index=False)
    (folder / "nothing.csv").write_text("")
    (folder / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "zeros.txt").write_bytes(b"to be\0or not")
    (folder / "nothing.txt").write_text("")
    (folder / "empty").mkdir()


@pytest.mark.parametrize(
    ("kind", "name", "code", "part"),
    [
        ("table", "lacks.csv", "dataset-invalid", "no column 'size'; rename 'Size'"),
        ("table", "texts.csv", "row-invalid", "column 'size' has the text 'large'"),
        ("table", "dates.csv", "row-invalid", "column 'size' has dates"),
        ("table", "header.csv", "dataset-invalid", "no rows"),
        ("table", "nothing.csv", "dataset-invalid", ""),
        ("table", "image.png", "dataset-invalid", "image.png"),
        ("table", "empty", "dataset-invalid", "no file"),
        ("table", "nowhere.csv", "path-missing", "nowhere.csv"),
        ("text", "image.png", "dataset-invalid", "not UTF-8"),
        ("text", "zeros.txt", "dataset-invalid", "zero bytes"),
        ("text", "nothing.txt", "dataset-invalid", "no character"),
        ("text", "empty", "dataset-invalid", "no .txt file"),
        ("text", "nowhere.txt", "path-missing", "nowhere.txt"),
    ],
)
def test_wrong_data_is_refused_in_one_sentence(price_bundle, text_bundle, check, tmp_path, kind, name, code, part):
    write_wrong_data(tmp_path)
    status, output = check({"table": price_bundle, "text": text_bundle}[kind], tmp_path / name)
    assert status == 2 and f"[{code}]" in output.err and part in output.err
    assert len(output.err.splitlines()) == 1 and not output.out
