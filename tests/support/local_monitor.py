"""Drift monitor in the same process, called as replicas call its actor."""

from pathlib import Path

from equipoise.drift.monitor.monitor import Monitor, Report
from equipoise.drift.monitor.stream_key import StreamKey
from equipoise.type_aliases import AnyArray
from services.monitoring.drift_replies import ReportReply, StreamState


class LocalMonitor:
    """Monitor that keeps the reports it gets; while it is away, calls fail."""

    def __init__(self, folder: Path, tick_seconds: float = 1.0) -> None:
        self.monitor = Monitor(folder, 2000.0, tick_seconds)
        self.reports: list[Report] = []
        self.states: dict[StreamKey, StreamState] = {}
        self.num_registered = 0
        self.is_away = False

    async def submit_report(self, report: Report) -> ReportReply:
        """Take a report unless one of its streams has no reference."""
        if self.is_away:
            raise ConnectionError("the monitor is away")
        streams = {key.all_sources for tick in report.ticks for key in tick.rows}
        if unknown := sorted(streams - self.monitor.profiles.keys(), key=str):
            return ReportReply(unknown=unknown)
        self.reports.append(report)
        return ReportReply(taken=self.monitor.submit_report(report, report.clock / 1000), states=self.states)

    async def register_reference(self, stream: StreamKey, arrays: dict[str, AnyArray]) -> None:
        """Register the reference profile of a stream."""
        self.monitor.register(stream, arrays)
        self.num_registered += 1

    def sum_rows(self) -> dict[StreamKey, AnyArray]:
        """Return the sums of all reported ticks by stream, each tick once."""
        ticks = {tick.number: tick for report in self.reports for tick in report.ticks}
        sums: dict[StreamKey, AnyArray] = {}
        for tick in ticks.values():
            for stream, row in tick.rows.items():
                sums[stream] = sums[stream] + row if stream in sums else row
        return sums
