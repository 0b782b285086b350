"""The README's workload trains, and its options and main make targets exist."""

import re
import sys
from pathlib import Path

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from jobs.adapt import AdaptOptions
from jobs.captures import CapturesOptions
from jobs.check import CheckOptions
from jobs.contact_sheet import ContactSheetOptions
from jobs.demo.__main__ import DemoOptions
from jobs.plan import PlanOptions
from jobs.publish import PublishOptions
from jobs.records import RecordsOptions
from jobs.sweep import SweepOptions
from jobs.train import TrainOptions

OPTION_CLASSES = (
    TrainOptions,
    PlanOptions,
    SweepOptions,
    PublishOptions,
    ContactSheetOptions,
    CheckOptions,
    CapturesOptions,
    AdaptOptions,
    DemoOptions,
    RecordsOptions,
)
README = Path(__file__).parents[3] / "README.md"


def read_code_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_readme_workload_reaches_its_target(tmp_path, monkeypatch):
    [code] = [block for block in read_code_blocks("python") if "Workload(" in block]
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    training = Training(TrainConfig(workload="mine:stripes", batch_size=16))
    assert list(training.laps())
    assert training.status == "reached_target"
    sys.modules.pop("mine")


def test_every_option_in_the_readme_exists():
    names = {name.replace("_", "-") for options in OPTION_CLASSES for name in options.__dataclass_fields__}
    project_options = {f"--{name}" for name in names} | {f"--no-{name}" for name in names}
    other_options = {"--working-dir", "--help", "--head", "--generate", "--constraint"}  # of Ray and other tools
    other_options |= {"--submission-id", "--no-wait", "--runtime-env-json", "--metadata-json"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README.read_text())) <= project_options | other_options


def test_make_targets_of_the_readme_exist():
    targets = re.findall(r"^([a-z-]+):", (README.parent / "Makefile").read_text(), re.MULTILINE)
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README.read_text(), re.MULTILINE))
    assert {"demo", "test"} <= named <= set(targets)
