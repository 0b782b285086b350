"""What the README shows is run as it stands."""

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

OPTIONS = (
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


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_workload_of_the_readme_is_learned(tmp_path, monkeypatch):
    [code] = [block for block in blocks("python") if "Workload(" in block]
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    training = Training(TrainConfig(workload="mine:stripes", batch_size=16))
    assert list(training.laps())
    assert training.status == "reached_target"
    sys.modules.pop("mine")


def test_every_option_named_is_an_option():
    names = {name.replace("_", "-") for options in OPTIONS for name in options.__dataclass_fields__}
    known = {f"--{name}" for name in names} | {f"--no-{name}" for name in names}
    others = {"--working-dir", "--help", "--head", "--generate", "--constraint"}  # Ray's, and everybody's
    others |= {"--submission-id", "--no-wait", "--runtime-env-json", "--metadata-json"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README.read_text())) <= known | others


def test_every_make_target_named_exists():
    targets = re.findall(r"^([a-z]+):", (README.parent / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"make ([a-z]+) ", README.read_text())) & set(targets) >= {"demo", "test"}
