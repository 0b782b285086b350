"""Description of the machine that measurements are taken on."""

from dataclasses import replace

import torch

from equipoise.hardware_facts import HardwareFacts, describe_machine


def describe_hardware(device: torch.device) -> HardwareFacts:
    """Describe the hardware and software that timings on a device depend on."""
    return replace(
        describe_machine(),
        torch=str(torch.__version__),
        device=device.type,
        gpu=torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    )
