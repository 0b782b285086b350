import numpy as np
import pytest

from equipoise.drift.features.column_scaling import MAX_ABS_Z, fit_column_scaling
from equipoise.drift.features.confidence import confidence_statistics
from equipoise.drift.features.table_columns import read_csv_columns
from equipoise.drift.features.table_stats import (
    MAX_CATEGORIES,
    MAX_PAIRED_COLUMNS,
    TableEncoder,
    fit_table_encoder,
    select_watched_columns,
)
from tests.support.errors import raises_code


def draw_table(count=400, seed=0):
    rng = np.random.default_rng(seed)
    columns = {
        "size": rng.normal(50, 4, count),
        "weight": rng.normal(0, 0.1, count),
        "sold": rng.integers(0, 2, count),
        "colour": rng.choice(["red", "blue"], count, p=[0.7, 0.3]).astype(object),
    }
    return columns, rng.normal(10, 2, count)


def encode(columns, answers, reference=None):
    encoder = fit_table_encoder(*(reference or (columns, answers)))
    values = encoder.statistics(columns, answers)
    return encoder, dict(zip(encoder.schema.names, values.T, strict=False))


def test_statistics_of_the_reference_are_standardized():
    columns, answers = draw_table()
    encoder, values = encode(columns, answers)
    assert encoder.schema.kind == "table" and encoder.schema.names[-2:] == ("distance", "strange")
    for name in ("size", "weight", "sold", "answer"):
        assert values[name].mean() == pytest.approx(0, abs=0.02) and values[name].std() == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(values["spread of size"], np.abs(values["size"]))
    np.testing.assert_allclose(values["size with weight"], values["size"] * values["weight"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(values["colour = red"], columns["colour"] == "red")
    assert "spread of sold" not in values and not values["other colour"].any() and not values["missing size"].any()


def test_missing_and_new_values_move_their_own_statistics_alone():
    columns, answers = draw_table()
    changed = {name: np.array(values) for name, values in columns.items()}
    changed["size"][:3] = [np.nan, np.inf, -np.inf]
    changed["colour"][:3] = [None, "", "pink"]
    _, values = encode(changed, answers, (columns, answers))
    assert values["missing size"][:4].tolist() == [1, 1, 1, 0] and values["size"][:3].tolist() == [0, 0, 0]
    assert values["missing colour"][:4].tolist() == [1, 1, 0, 0] and values["other colour"][:4].tolist() == [0, 0, 1, 0]


def test_answers_are_binned_by_quarters_or_are_classes():
    columns, answers = draw_table()
    encoder = fit_table_encoder(columns, answers)
    assert np.bincount(encoder.classes(answers)).tolist() == [100] * 4 and not encoder.schema.has_accuracy
    logits = np.stack([answers - 10, np.zeros(400), np.zeros(400)], 1)
    of_classes = fit_table_encoder(columns, logits)
    np.testing.assert_array_equal(of_classes.classes(logits), logits.argmax(1))
    assert of_classes.schema.has_accuracy and of_classes.schema.names[-4:-2] == ("log odds", "energy")


def test_answers_may_be_a_list():
    columns, answers = draw_table()
    from_list, from_array = (fit_table_encoder(columns, given).to_arrays() for given in (answers.tolist(), answers))
    assert from_list.keys() == from_array.keys()
    assert all(np.array_equal(from_list[name], from_array[name]) for name in from_array)


def test_statistics_of_many_columns_and_categories_are_limited():
    rng = np.random.default_rng(1)
    columns = {f"x{index}": rng.normal(size=300) for index in range(15)}
    columns["code"] = rng.integers(0, 20, 300)
    schema = fit_table_encoder(columns, rng.normal(size=300), ["code"]).schema
    assert sum(" with " in name for name in schema.names) == MAX_PAIRED_COLUMNS * (MAX_PAIRED_COLUMNS - 1) // 2
    assert sum(name.startswith("code = ") for name in schema.names) == MAX_CATEGORIES


def test_statistics_of_logits_are_those_of_their_confidence():
    columns, _ = draw_table()
    logits = np.random.default_rng(3).normal(size=(400, 3))
    expected = confidence_statistics(logits, temperature=1.0)
    np.testing.assert_array_equal(fit_table_encoder(columns, logits).answer_statistics(logits), expected)


def test_one_extreme_value_does_not_set_the_scale():
    values = np.random.default_rng(2).normal(size=(2000, 1))
    expected = fit_column_scaling(values).scale
    values[7] = 1e12
    scaling = fit_column_scaling(values)
    assert scaling.scale == pytest.approx(expected, rel=0.05) and scaling.standardize(values)[7] == MAX_ABS_Z


def test_constant_and_empty_columns_are_finite():
    columns = {"same": np.full(200, 3.0), "none": np.full(200, np.nan)}
    _, values = encode(columns, np.arange(200.0))
    assert all(np.isfinite(column).all() for column in values.values())
    assert not values["same"].any() and values["missing none"].all()


@pytest.mark.parametrize("answers", [np.arange(400.0), np.eye(3)[np.arange(400) % 3]])
def test_stored_encoder_gives_equal_statistics(answers):
    columns, _ = draw_table()
    encoder = fit_table_encoder(columns, answers)
    stored = TableEncoder.from_arrays(encoder.to_arrays())
    assert stored.schema == encoder.schema
    np.testing.assert_array_equal(stored.statistics(columns, answers), encoder.statistics(columns, answers))
    np.testing.assert_array_equal(stored.features(columns), encoder.features(columns))


def test_rows_that_lack_a_column_or_hold_words_for_numbers_are_refused():
    columns, answers = draw_table()
    encoder = fit_table_encoder(columns, answers)
    with raises_code("dataset-invalid", "weight"):
        encoder.statistics({name: values for name, values in columns.items() if name != "weight"}, answers)
    with raises_code("dataset-invalid", "size"):
        encoder.statistics(columns | {"size": columns["colour"]}, answers)


def test_csv_is_read_as_numbers_and_words(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("size,colour\n1.5,red\n,\n-2,blue\n")
    columns = read_csv_columns(path)
    np.testing.assert_array_equal(columns["size"], [1.5, np.nan, -2])
    assert columns["colour"].tolist() == ["red", "", "blue"]
    for contents, number in (("", 0), ("a,b\n", 0), ("a,b\n1,2\n3\n", 3)):
        path.write_text(contents)
        with raises_code("dataset-invalid", *([f"line {number}"] if number else [])):
            read_csv_columns(path)


def test_first_columns_are_watched_by_themselves_within_a_number_of_statistics():
    columns = {
        "size": np.arange(100.0),
        "colour": np.array(["red", "green"] * 50, dtype=object),
        "name": np.array([f"name {index}" for index in range(100)], dtype=object),
    }
    counts = {1: 0, 3: 1, 6: 1, 7: 2, 12: 2, 17: 3}
    for limit, count in counts.items():
        assert select_watched_columns(columns, limit) == [*columns][:count]
    encoder = fit_table_encoder(columns, np.arange(100.0))
    assert encoder.schema.input_count == 3 + 4 + 10


def test_answers_in_a_column_are_numbers_and_no_class():
    columns, answers = draw_table()
    in_column, flat = (fit_table_encoder(columns, given).to_arrays() for given in (answers[:, None], answers))
    assert all(np.array_equal(in_column[name], flat[name]) for name in flat) and in_column.keys() == flat.keys()
