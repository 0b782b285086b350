"""Adaptation of a deployment: the options of its job, and the paths of what it writes."""

from equipoise.drift.adaptation.gate_report import GateReport, GateRow
from jobs.adapt import AdaptOptions
from jobs.cli.option_parser import parse_options
from services.site.models.adaptation_jobs import (
    AdaptBody,
    build_adapt_arguments,
    choose_adaptation_paths,
    read_report,
)
from services.site.models.deployments.deployment import Deployment

DIGITS = Deployment(name="digits", model="net", bundle="bundles/a", port=8001, requires_key=True)


def test_the_options_are_those_of_the_command_and_nothing_is_linked(tmp_path):
    adaptation = choose_adaptation_paths(tmp_path, DIGITS)
    arguments = build_adapt_arguments(tmp_path, DIGITS, adaptation, AdaptBody(epochs=3, workers=2, accept_blur=True))
    options = parse_options(AdaptOptions, arguments)
    assert options.bundle == str(tmp_path / "bundles/a") and options.service == "http://127.0.0.1:8001/"
    assert options.out == tmp_path / "bundles/digits-adapted-1"
    assert options.report == tmp_path / "services/digits/adaptations/1.json"
    assert options.key == tmp_path / ".site/keys/digits.keys"
    assert (options.epochs, options.workers, options.accept_blur, options.link) == (3, 2, True, None)


def test_the_next_adaptation_writes_to_new_paths(tmp_path):
    (tmp_path / "bundles" / "digits-adapted-1").mkdir(parents=True)
    (tmp_path / "services" / "digits" / "adaptations").mkdir(parents=True)
    (tmp_path / "services" / "digits" / "adaptations" / "2.json").write_text("{}")
    assert choose_adaptation_paths(tmp_path, DIGITS).bundle == "bundles/digits-adapted-3"


def test_the_report_of_the_gate_is_read_once_it_is_there(tmp_path):
    report = GateReport(rows=(GateRow(images="clean", before=0.97, after=0.96),), refusal="too little regained")
    assert read_report(tmp_path / "gate.json") is None
    report.write(tmp_path / "gate.json")
    assert read_report(tmp_path / "gate.json") == report
    (tmp_path / "gate.json").write_text("{")
    assert read_report(tmp_path / "gate.json") is None
