import os
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest
import torch

from equipoise.hardware import describe_hardware
from equipoise.hardware_facts import HardwareFacts, cpu_name, describe_machine


def test_facts_of_this_machine_survive_json():
    facts = describe_hardware(torch.device("cpu"))
    assert facts.cores >= 1 and facts.device == "cpu" and facts.torch == torch.__version__
    assert msgspec.convert(facts.to_json(), HardwareFacts) == facts
    assert [*facts.to_json()] == [field.name for field in fields(HardwareFacts) if field.name != "gpu"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind processes to cores")
def test_cores_are_those_that_this_process_may_use():
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert describe_machine().cores == 1
    finally:
        os.sched_setaffinity(0, cores)


def test_processor_is_the_one_that_the_system_names():
    assert f"model name\t: {cpu_name()}\n" in Path("/proc/cpuinfo").read_text()
    assert describe_hardware(torch.device("cpu")).processor == cpu_name()


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (HardwareFacts(), ""),
        (HardwareFacts(processor="x86", cores=2, gpu="H200"), "processor x86, cores 2, gpu H200"),
    ],
)
def test_text_names_the_known_facts(facts, text):
    assert str(facts) == text
