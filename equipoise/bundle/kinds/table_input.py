"""Tensors that a published model of a table takes: encoded numbers and codes of categories."""

from equipoise.bundle.tensor_spec import OPEN_SIZE, TensorSpec
from equipoise.tables.spec import TableSpec

NUMBERS_TENSOR, CODES_TENSOR, VALUES_TENSOR = "numbers", "codes", "values"


def list_table_inputs(spec: TableSpec) -> tuple[TensorSpec, ...]:
    """Return the tensors that a model of these columns takes, as `TableSpec.encode_rows` makes them."""
    numbers, codes = len(spec.feature_names), len(spec.category_columns)
    inputs = []
    if numbers:
        inputs.append(TensorSpec(name=NUMBERS_TENSOR, dtype="float32", shape=(OPEN_SIZE, numbers)))
    if codes:
        inputs.append(TensorSpec(name=CODES_TENSOR, dtype="int64", shape=(OPEN_SIZE, codes)))
    return tuple(inputs)
