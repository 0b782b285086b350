"""`equipoise check` of tables and of texts: verdicts, pages, and what it refuses in one sentence."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from equipoise.config import TrainConfig
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from equipoise.training.loop import Training
from jobs.check import main
from tests.support.bundles import publish_run, train_short_run, train_table, write_run_folder

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
    (folder / "rhymes.txt").write_text(write_rhymes(60_000, 1))
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
