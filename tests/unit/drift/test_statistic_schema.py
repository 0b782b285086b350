import numpy as np
import pytest

from equipoise.drift.charts.chart_names import CLASS_AND_FEATURE_CHARTS, ChartNames
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.features.statistic_schema import (
    DISTANCE_COLUMN,
    OUTLIER_COLUMN,
    StatisticSchema,
    WatchedStatistic,
    build_schema,
)
from equipoise.drift.features.text_stats import TEXT_SCHEMA, TextEncoder, fit_text_encoder
from tests.support.errors import raises_code


@pytest.mark.parametrize("schema", [IMAGE_SCHEMA, TEXT_SCHEMA, build_schema("table", [], [])])
def test_schema_is_the_same_after_storing_it(tmp_path, schema):
    np.savez(tmp_path / "schema.npz", **schema.to_arrays())
    with np.load(tmp_path / "schema.npz", allow_pickle=False) as arrays:
        assert StatisticSchema.from_arrays(arrays) == schema


def test_schema_of_an_unknown_kind_is_refused():
    arrays = TEXT_SCHEMA.to_arrays() | {"kind": np.array("sound")}
    with raises_code("reference-unusable", "sound"):
        StatisticSchema.from_arrays(arrays)


def test_features_end_every_schema():
    schema = build_schema("table", [WatchedStatistic(name="x")], [WatchedStatistic(name="y", source="output")])
    assert (schema.names[DISTANCE_COLUMN], schema.names[OUTLIER_COLUMN]) == ("distance", "strange")
    assert schema.input_count == 1 and len(schema) == 4 and schema.is_binary.tolist() == [False, False, False, True]
    assert schema.example_name == "rows" and schema.statistics[-1].unit == "of the rows"


def test_cells_of_images_weigh_less():
    weights = dict(zip(IMAGE_SCHEMA.names, IMAGE_SCHEMA.cause_weights.tolist(), strict=True))
    assert (weights["luminance"], weights["cell 1.1"], weights["roughness"], weights["energy"]) == (1, 0.5, 0.4, 0)
    assert IMAGE_SCHEMA.condition_weights.sum() == 12 + 16 / 4
    onset = dict(zip(IMAGE_SCHEMA.names, IMAGE_SCHEMA.onset_weights.tolist(), strict=True))
    assert (onset["distance"], onset["strange"], onset["log odds"], onset["energy"]) == (1, 1, 1, 0)


def test_text_is_described_by_its_characters():
    encoder = fit_text_encoder(["ab" * 100, "ab" * 100 + "q"])
    assert encoder.common_characters == {"a", "b"} and encoder.known_characters == {"a", "b", "q"}
    rows = encoder.statistics(["abab", "abqq", "abcé", ""], [1.0, 2.0, 3.0, 4.0])
    expected = [[np.log(5), 0, 0, 1], [np.log(5), 0.5, 0, 2], [np.log(5), 0.5, 1, 3], [0, 0, 0, 4]]
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    assert TextEncoder.from_arrays(encoder.to_arrays()) == encoder


def test_columns_named_as_other_charts_get_a_name_of_their_own():
    names = ("x", "distance", "features", "answer", "x", "spread of x")
    inputs = [WatchedStatistic(name=name) for name in names]
    schema = build_schema("table", inputs, [WatchedStatistic(name="answer", source="output")])
    assert schema.names[:6] == ("x", "input distance", "input features", "input answer", "input x", "spread of x")
    charts = ChartNames(schema.names)
    values = np.arange(charts.score_chart_count + len(CLASS_AND_FEATURE_CHARTS), dtype=np.float64)
    assert len(charts.highest_by_name(values)) == len(charts.unique) == len(schema) + 3
