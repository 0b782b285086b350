"""Description of the machine that measurements are taken on."""

import os
import platform
from pathlib import Path

import torch

from equipoise.hardware_facts import HardwareFacts
from equipoise.version import find_version


def describe_hardware(device: torch.device) -> HardwareFacts:
    """Describe the hardware and software that timings on a device depend on."""
    return HardwareFacts(
        processor=cpu_name(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        system=platform.system(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        equipoise=find_version(),
        device=device.type,
        gpu=torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    )


def cpu_name() -> str:
    """Return the processor's model name, or its architecture where the name is unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
