"""Run of a user's training command: its process, the laps it reports, and how it ended."""

from pathlib import Path
from typing import NamedTuple

from equipoise.command_template import fill_command
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware_facts import HardwareFacts
from equipoise.runs.record import Lap, Record, RunStatus, examples_at_target
from equipoise.runs.reports import LapBuilder, Report, ReportReader
from equipoise.runs.run_end import find_run_end
from equipoise.runs.target import command_target
from jobs.user_command.command_process import CommandProcess

UNLIMITED_EXAMPLES = 10**12  # of a command without --max-examples: it trains as long as it likes


class CommandFolders(NamedTuple):
    """Folders of a command: the one to start it in, and the one for its files, a path or URL."""

    working: str
    files: str


class CommandRun:
    """Run of a command with the settings of a config, followed by its reports.

    `status` is None until the run has ended; `reason` says why it failed.
    """

    def __init__(self, config: TrainConfig, folders: CommandFolders, mark: str | None = None) -> None:
        self.config = config
        self.target = command_target(config)
        self.status: RunStatus | None = None
        self.reason: str | None = None
        self.reader = ReportReader(config.metric_pattern, config.examples_pattern)
        self.lap_builder = LapBuilder(workers=config.workers, global_batch=config.global_batch, lr=config.lr)
        values = {name: getattr(config, name) for name in ("batch_size", "lr", "seed", "workers")}
        arguments = fill_command(config.command or "", values | {"out": folders.files})
        self.process: CommandProcess | None = None
        try:
            self.process = CommandProcess(arguments, config.threads, Path(folders.working), mark)
        except EquipoiseError as error:  # a program that does not exist
            self._fail(str(error))

    @property
    def finished_laps(self) -> list[Lap]:
        """Laps that the command has reported."""
        return self.lap_builder.finished_laps()

    def follow(self, seconds: float) -> None:
        """Read what the command reports for some seconds, and end it as soon as its run has come to an end."""
        if self.status or self.process is None:
            return
        for line in self.process.read_lines(seconds):
            self._read_line(line.text, line.seconds)
            if self.status:
                self.process.stop()
                return
        if self.process.has_ended():
            self._end_with_process(self.process)

    def _read_line(self, text: str, seconds: float) -> None:
        """Add what a line reports; an invalid report ends the run as failed."""
        try:
            if report := self.reader.read_line(text):
                self.lap_builder.add_report(report, self._report_seconds(report, seconds))
                max_examples = self.config.max_examples or UNLIMITED_EXAMPLES
                self.status, self.reason = find_run_end(
                    self.lap_builder.laps, self.target, max_examples, self.config.patience
                )
        except EquipoiseError as error:
            self._fail(str(error))

    def _report_seconds(self, report: Report, read_seconds: float) -> float:
        """Return the seconds from the start of the command to a report, by its own clock if that is this machine's."""
        if report.clock is None or self.process is None:
            return read_seconds
        seconds = report.clock - self.process.started_at
        return seconds if 0 <= seconds <= read_seconds else read_seconds

    def _end_with_process(self, process: CommandProcess) -> None:
        """Set the status of a run whose command has ended before it reached its target."""
        status = process.stop()  # with all that it has left running
        self.lap_builder.finish()
        if status != 0:
            self._fail(process.describe_end())
        elif not self.lap_builder.laps:
            self._fail(f"it reported no examples: {process.describe_end()}")
        elif self.target.value is not None and all(lap.metric is None for lap in self.lap_builder.laps):
            self._fail(f"it reported examples and no metric; {process.describe_output()}")
        else:
            self.status, self.reason = "max_examples", "the command ended by itself"

    def _fail(self, reason: str) -> None:
        self.status, self.reason = "failed", reason

    def stop(self) -> None:
        """End the command and all that it started."""
        if self.process:
            self.process.stop()

    def build_record(self, machine: HardwareFacts) -> Record:
        """Build the record of what the command has reported so far."""
        laps = self.finished_laps
        return Record(
            config=self.config,
            machine=machine,
            laps=laps,
            status=self.status or "running",
            reason=self.reason,
            target=self.target.value,
            lower_is_better=self.target.lower_is_better,
            examples_to_target=examples_at_target(laps, self.target),
            test=None,
        )
