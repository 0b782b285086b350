"""Size of a transformer as it is written after its name: LAYERSxWIDTH."""

import re
from dataclasses import dataclass

from equipoise.errors import EquipoiseError

MIN_HEADS, MAX_HEAD_WIDTH = 4, 64
SIZE_PATTERN = re.compile(r"([1-9]\d{0,2})x([1-9]\d{0,4})")


@dataclass(frozen=True)
class ModelSize:
    """Number of layers of a transformer, and width of its residual stream."""

    layers: int
    width: int

    @property
    def heads(self) -> int:
        """Number of attention heads: four, or as many as keep each at 64 wide."""
        return max(MIN_HEADS, self.width // MAX_HEAD_WIDTH)


def parse_model_size(name: str, size: str) -> ModelSize:
    """Parse the size of the model `name`, such as 4x128."""
    if not (match := SIZE_PATTERN.fullmatch(size)):
        raise EquipoiseError(
            "model-invalid", f"cannot build {name}: {size!r} is not LAYERSxWIDTH", "give a size such as 4x128"
        )
    parsed = ModelSize(layers=int(match[1]), width=int(match[2]))
    if parsed.width % parsed.heads:
        raise EquipoiseError(
            "model-invalid",
            f"cannot build {name}: a width of {parsed.width} cannot be shared by {parsed.heads} attention heads",
            f"choose a multiple of {MAX_HEAD_WIDTH}",
        )
    return parsed
