"""Hardware and software that measurements were taken on, as records and bundles keep them."""

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from equipoise.type_aliases import JsonObject
from equipoise.version import find_version


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


def describe_machine() -> HardwareFacts:
    """Describe the machine as far as it is known without PyTorch."""
    return HardwareFacts(
        processor=cpu_name(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        system=platform.system(),
        python=platform.python_version(),
        equipoise=find_version(),
    )


def cpu_name() -> str:
    """Return the processor's model name, or its architecture where the name is unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
