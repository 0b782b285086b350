"""Publish the model of a finished run as a bundle: a folder that services load without the training code.

The model is exported, every engine is timed and compared with eager PyTorch, and the fastest one that gives the same
answers is chosen. The bundle in --out holds the programs and weights, a manifest (bundle.json), a model card (card.md)
and the reference that later requests are compared with to detect drift. --out appears only when it is complete: after
an interruption run the same command again.

Exit status: 0 published; 1 the object store did not answer; 2 wrong options or files; 143 stopped.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import sys
from dataclasses import dataclass
from pathlib import Path

from equipoise.bundle.manifest import summarize_metrics
from equipoise.command_line import command
from equipoise.formatting import make_printable
from equipoise.runs.record import Record
from jobs.cli.engine_report import format_engine_table
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import OptionalPathOrUrl, PathOrUrl
from jobs.publishing.publish import Published, PublishRequest, publish_bundle


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    __doc__ = __doc__

    run: PathOrUrl
    """folder or URL of a finished run"""
    out: PathOrUrl
    """folder or URL of the bundle; must not exist"""
    name: str | None = None
    """name of the model in the service; the workload's name if not given"""
    plan: OptionalPathOrUrl = None
    """plan.json that the run was trained with, or the folder of a sweep; kept in the bundle"""
    drift: bool = True
    """profile the reference so that the service can detect drift and name its cause; takes about half a minute"""
    native: bool = True
    """also time native code of AOTInductor, for comparison only; needs a C++ compiler and about a minute"""

    def request(self) -> PublishRequest:
        """Return the options as a request of `publish_bundle`."""
        return PublishRequest(
            run=self.run, out=self.out, name=self.name, plan=self.plan, drift=self.drift, native=self.native
        )


@command(on_stop="stopped: nothing was published", on_store_failure="nothing was published")
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(PublishOptions)
    print_published(publish_bundle(options.request()), options.out)
    return 0


def print_published(published: Published, out: Path) -> None:
    """Print the measurements of the engines, the one chosen and how well the model does."""
    print(format_engine_table(published.results))
    print(f"{out}: engine {published.engine}, because {published.why}; {summarize_metrics(published.metrics)} on test")
    if published.false_alarm_rate:
        print(published.false_alarm_rate)
    if published.reference_warning:
        print(f"note: {published.reference_warning}", file=sys.stderr)
    if missed := describe_missed_target(published.record):
        print(make_printable(f"note: {missed}"), file=sys.stderr)


def describe_missed_target(record: Record) -> str:
    """Return a sentence if a run has not reached its target; empty if it has, or if it has none."""
    if record.target is None or record.reached:
        return ""
    return f"the run did not reach its target of {record.goal.describe()} (status: {record.outcome})"


if __name__ == "__main__":
    sys.exit(main())
