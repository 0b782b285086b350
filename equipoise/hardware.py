"""Description of the machine that measurements were taken on."""

import os
import platform
from pathlib import Path
from typing import Any

import torch


def describe_hardware(device: torch.device) -> dict[str, Any]:
    """Describe the hardware and software that timings depend on, without host name or address."""
    facts: dict[str, Any] = {
        "processor": cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": device.type,
    }
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


def cpu_name() -> str:
    """Return the processor's model name, or its architecture where the name is unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
