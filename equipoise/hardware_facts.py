"""Hardware and software that measurements were taken on, as records and bundles keep them."""

from dataclasses import asdict, dataclass

from equipoise.type_aliases import JsonObject


@dataclass(frozen=True, kw_only=True)
class HardwareFacts:
    """Hardware and software that timings depend on, without host name or address; None where a fact is unknown."""

    processor: str | None = None
    """model name of the processor, or its architecture"""
    cores: int | None = None
    """cores that the process may use"""
    system: str | None = None
    """name of the operating system, such as Linux"""
    python: str | None = None
    """version of Python"""
    torch: str | None = None
    """version of PyTorch"""
    equipoise: str | None = None
    """version of Equipoise"""
    device: str | None = None
    """kind of device that trained: cpu or cuda"""
    gpu: str | None = None
    """model name of the GPU"""

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.to_json().items())

    def to_json(self) -> JsonObject:
        """Return the facts that are known."""
        return {name: value for name, value in asdict(self).items() if value is not None}
