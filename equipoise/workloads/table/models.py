"""Models of tables: multilayer perceptrons, with an embedding for each category."""

import re
from collections.abc import Callable
from itertools import accumulate

import torch
from torch import Tensor, nn

from equipoise.errors import EquipoiseError
from equipoise.tables.spec import TableSpec

DEFAULT_LAYERS, DEFAULT_WIDTH = 2, 64
MAX_LAYERS, MAX_WIDTH = 32, 8192
EMBEDDING_WIDTH = 8
MODEL_NAME = re.compile(r"mlp(?::(\d{1,4})x(\d{1,6}))?")


class TableModel(nn.Module):
    """Multilayer perceptron of numbers and embedded categories.

    It takes numbers (rows, features), codes of categories (rows, columns), or both in this order, and returns one score
    for each class, or the standardized number (rows,).
    """

    first_codes: Tensor  # of each category column among the rows of the embedding

    def __init__(self, spec: TableSpec, layers: int = DEFAULT_LAYERS, width: int = DEFAULT_WIDTH) -> None:
        super().__init__()
        sizes = spec.category_sizes
        self.num_features = len(spec.feature_names)
        self.embedding: nn.Embedding | None = None
        if sizes:
            self.embedding = nn.Embedding(sum(sizes), EMBEDDING_WIDTH)  # of all columns, one after another
            first_codes = torch.tensor([0, *accumulate(sizes[:-1])])
            self.register_buffer("first_codes", first_codes, persistent=False)
            with torch.no_grad():
                self.embedding.weight[first_codes] = 0.0  # a text never seen in training adds nothing
        num_inputs = self.num_features + EMBEDDING_WIDTH * len(sizes)
        widths = [num_inputs, *[width] * layers]
        self.body = nn.Sequential(
            *(layer for i in range(layers) for layer in (nn.Linear(widths[i], widths[i + 1]), nn.ReLU()))
        )
        self.head = nn.Linear(width, max(1, len(spec.label.classes)))
        self.is_regression = spec.label.kind == "number"

    def forward(self, *inputs: Tensor) -> Tensor:
        parts = [inputs[0]] if self.num_features else []
        if self.embedding is not None:
            parts.append(self.embedding(inputs[-1] + self.first_codes).flatten(1))
        outputs: Tensor = self.head(self.body(torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]))
        return outputs.squeeze(1) if self.is_regression else outputs


def table_model_factory(name: str | None, spec: TableSpec) -> Callable[[], nn.Module]:
    """Return a function that builds a new model: `mlp`, or `mlp:LAYERSxWIDTH`; by default two layers of 64."""
    match = MODEL_NAME.fullmatch(name or "mlp")
    if match is None:
        raise EquipoiseError(
            "model-unknown", f"there is no model {name!r} of tables", "give mlp:LAYERSxWIDTH, such as mlp:2x64"
        )
    layers, width = int(match[1] or DEFAULT_LAYERS), int(match[2] or DEFAULT_WIDTH)
    if not (1 <= layers <= MAX_LAYERS and 1 <= width <= MAX_WIDTH):
        raise EquipoiseError(
            "model-invalid",
            f"cannot build {name}: it has {layers} layers of {width}",
            f"give 1 to {MAX_LAYERS} layers of 1 to {MAX_WIDTH}",
        )
    return lambda: TableModel(spec, layers, width)
