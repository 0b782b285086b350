"""Try proposals: steps with the change, in turns with steps of the run as it is."""

from dataclasses import replace

import torch

from equipoise.errors import EquipoiseError
from equipoise.profiling.advice import MIN_GAIN
from equipoise.profiling.profile_report import ProfileReport, Proposal
from equipoise.profiling.skipped_calls import StepsWithoutCall
from equipoise.profiling.step_turns import keep_batches, measure_gain, try_training
from equipoise.profiling.stepped_training import SteppedTraining
from equipoise.workloads import Workload


def try_proposals(
    report: ProfileReport,
    stepped: SteppedTraining,
    workload: Workload,
    device: torch.device,
    min_gain: float = MIN_GAIN,
) -> ProfileReport:
    """Return a profile with the measured gain of each proposal that is predicted to gain enough and can be tried here.

    One that needs fewer workers is not tried: the process group has all of them. All workers call this.
    """
    tried = [
        replace(proposal, tried_gain=try_proposal(proposal, report, stepped, workload, device))
        if proposal.gain.value >= min_gain
        else proposal
        for proposal in report.proposals
    ]
    return replace(report, proposals=tuple(tried))


def try_proposal(
    proposal: Proposal, report: ProfileReport, stepped: SteppedTraining, workload: Workload, device: torch.device
) -> float | None:
    """Return the measured gain of a proposal; None where it cannot be tried, or does not run."""
    try:
        other = build_changed_training(proposal, report, stepped, workload, device)
        return None if other is None else measure_gain(stepped, other)
    except (RuntimeError, ValueError, EquipoiseError):  # the same on all workers; the profile itself is complete
        return None


def build_changed_training(
    proposal: Proposal, report: ProfileReport, stepped: SteppedTraining, workload: Workload, device: torch.device
) -> SteppedTraining | None:
    """Build the training that a proposal asks for; None where nothing here can do what it asks."""
    if "workers" in proposal.options:
        return None
    if proposal.options:
        options: dict[str, object] = {**proposal.options}
        return try_training(replace(report.config, **options), workload, device)  # type: ignore[arg-type]
    if proposal.name == "loader as fast as the step":
        if stepped.training.config.sync_method.kind != "step":  # other steps take their batches elsewhere
            return None
        cached = SteppedTraining(report.config, workload, device)
        keep_batches(cached)
        return cached
    point = next((point for point in report.sync_points if proposal.name.endswith(f"at {point.place}")), None)
    return None if point is None else StepsWithoutCall(stepped, point.file, point.line)
