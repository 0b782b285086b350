"""Merge the ticks of several replicas so that each counts once, in whatever order, if sent twice or after a restart.

A replica numbers its ticks and sends each until it is acknowledged. A tick of the clock is closed, and goes to the
detectors, once every replica has reported up to it or has been silent for too long; what arrives later counts in the
next tick. Nothing here reads a clock: the same calls lead to the same state.
"""

from dataclasses import dataclass, field

from equipoise.drift.charts.sums import FixedPointSums
from equipoise.drift.monitor.stream_key import StreamKey

REPLICA_TIMEOUT_SECONDS = 10.0  # seconds of silence after which a replica counts as dead, at least
REPLICA_TIMEOUT_TICKS = 3  # ticks of silence after which a replica counts as dead, at least
MAX_DEPARTED_REPLICAS = 256  # dead or departed replicas whose last tick is remembered, in case they come back

SumsByStream = dict[StreamKey, FixedPointSums]
"""sums over images, by stream"""


@dataclass(frozen=True, eq=False)
class Tick:
    """Sums of what one replica observed between two reports."""

    number: int
    """sequence number of the replica's ticks, from 1"""
    clock: int
    """Unix time in milliseconds at which the tick ended, the same for all replicas"""
    rows: SumsByStream


@dataclass
class Replica:
    """Progress of one replica: what it has reported, and when it was last heard."""

    taken: int = 0
    """number of its last tick that was counted"""
    clock: int = -1
    """Unix time in milliseconds up to which it has reported everything"""
    heard: float = 0.0
    """Unix time in seconds of its last report"""


@dataclass
class ReportLedger:
    """Ticks that were received but are not closed yet, and counters of late, repeated and lost ones."""

    timeout_seconds: float = REPLICA_TIMEOUT_SECONDS
    """seconds of silence after which a replica counts as dead"""
    replicas: dict[str, Replica] = field(default_factory=dict)
    """live replicas by name"""
    waiting: dict[int, SumsByStream] = field(default_factory=dict)
    """merged sums of ticks not closed yet, by the Unix time in milliseconds at which the tick ends"""
    closed: int = -1
    """Unix time in milliseconds of the last tick that was closed"""
    late: int = 0
    """ticks that arrived after theirs was closed and were counted in the next"""
    twice: int = 0
    """ticks that arrived again and were not counted again"""
    lost: int = 0
    """ticks that never arrived: dropped by a replica, or in flight when it died"""
    died: int = 0
    """replicas that fell silent for longer than the timeout"""
    gone: dict[str, int] = field(default_factory=dict)
    """number of the last counted tick of each replica that died or left"""
    dead: list[str] = field(default_factory=list)
    """names of departed replicas that died, without a last report"""

    def add_report(
        self, replica_name: str, ticks: list[Tick], clock: int, now: float, leaves: bool = False, confirmed: int = 0
    ) -> int:
        """Count the ticks of a replica that has reported everything up to `clock`; return the last number counted.

        Ticks up to this number are acknowledged and need not be sent again. `confirmed` is the last number that the
        replica knows to be acknowledged: a replica that this ledger does not know continues from it.
        """
        if replica_name not in self.replicas:
            self.replicas[replica_name] = Replica(taken=self.gone.pop(replica_name, confirmed), clock=self.closed)
        if replica_name in self.dead:  # it was only slow, so the tick it was summing is not lost
            self.dead.remove(replica_name)
            self.lost -= 1
        replica = self.replicas[replica_name]
        for tick in ticks:
            self._count_tick(replica, tick)
        replica.clock, replica.heard = max(replica.clock, clock), now
        taken = replica.taken
        if leaves:
            self._remove_replica(replica_name)
        return taken

    def _remove_replica(self, replica_name: str) -> None:
        self.gone[replica_name] = self.replicas.pop(replica_name).taken
        for oldest in [*self.gone][:-MAX_DEPARTED_REPLICAS]:
            del self.gone[oldest]

    def _count_tick(self, replica: Replica, tick: Tick) -> None:
        if tick.number <= replica.taken:
            self.twice += 1
            return
        self.lost += tick.number - replica.taken - 1
        replica.taken = tick.number
        if tick.clock <= self.closed:
            self.late += 1
        clock = max(tick.clock, self.closed + 1)
        rows = self.waiting.setdefault(clock, {})
        for stream, row in tick.rows.items():
            rows[stream] = rows[stream] + row if stream in rows else row

    def pop_closed_ticks(self, now: float) -> list[tuple[int, SumsByStream]]:
        """Close the ticks that are complete and return their Unix time in milliseconds and sums, in order."""
        for name in [name for name, replica in self.replicas.items() if now - replica.heard > self.timeout_seconds]:
            self._remove_replica(name)
            self.dead = [*self.dead, name][-MAX_DEPARTED_REPLICAS:]
            self.died += 1
            self.lost += 1  # the tick that it was summing when it died
        latest = max(self.waiting, default=self.closed)
        reported = min((replica.clock for replica in self.replicas.values()), default=latest)
        ready = sorted(clock for clock in self.waiting if clock <= reported)
        self.closed = max(self.closed, reported)
        return [(clock, self.waiting.pop(clock)) for clock in ready]
