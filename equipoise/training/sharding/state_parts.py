"""Training state of which each worker holds a part, as whole tensors by name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from equipoise.errors import EquipoiseError
from equipoise.training.sharding.tensor_slice import TensorSlice, join_parts


@dataclass(frozen=True, kw_only=True)
class StatePart:
    """Tensors of a worker by name, and which parts of the whole ones they are."""

    tensors: Mapping[str, Tensor]
    slices: Mapping[str, TensorSlice] = field(default_factory=dict)
    """parts of tensors, by name; tensors without one are whole"""


class JoinedState(Mapping[str, Tensor]):
    """Whole tensors of several workers' parts by name, each joined when it is asked for."""

    def __init__(self, parts: Sequence[StatePart]) -> None:
        self.parts_by_name: dict[str, list[StatePart]] = {}
        for part in parts:
            for name in part.tensors:
                self.parts_by_name.setdefault(name, []).append(part)

    def __getitem__(self, name: str) -> Tensor:
        parts = self.parts_by_name[name]
        if name not in parts[0].slices:
            return parts[0].tensors[name]
        try:
            return join_parts((part.slices[name], part.tensors[name]) for part in parts)
        except (ValueError, KeyError, RuntimeError) as error:
            raise EquipoiseError("run-damaged", f"cannot join the parts of {name}: {error}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts_by_name)

    def __len__(self) -> int:
        return len(self.parts_by_name)
