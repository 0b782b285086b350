"""Energy counter of a GPU, by NVIDIA's management library, where its Python package (nvidia-ml-py) is installed."""

from typing import Any

MILLIJOULES = 1e3


class NvmlCounter:
    """Counter of one GPU, read as joules since its driver was loaded."""

    def __init__(self, library: Any, handle: Any) -> None:
        self.library, self.handle = library, handle

    def read_joules(self) -> float:
        """Return the joules since the driver was loaded."""
        return float(self.library.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / MILLIJOULES


def open_nvml_counter(uuid: str) -> NvmlCounter | None:
    """Open the counter of the GPU with this identifier; None where the package is missing, or the GPU has none."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        counter = NvmlCounter(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
        counter.read_joules()
    except pynvml.NVMLError:
        return None
    return counter
