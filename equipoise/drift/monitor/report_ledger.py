"""Ticks of several replicas, merged so that each counts once: in whatever order, twice delivered or after a restart.

A replica numbers its ticks and sends each until it is told that it was taken. A tick of the clock is closed, and goes
to the watches, once every replica has told all up to it, or has been silent for too long; what comes later counts into
the next tick. Nothing here reads a clock: the same calls leave the same state.
"""

from dataclasses import dataclass, field

from equipoise.drift.charts.sums import FixedPointSums

REPLICA_TIMEOUT_SECONDS = 10.0  # seconds after which a replica is taken to have died, at least
REPLICA_TIMEOUT_TICKS = 3  # ticks of the clock; the same
MAX_DEPARTED_REPLICAS = (
    256  # replicas that died or left, of which it is known what they told: they may come back, or be heard twice
)

SumsByStream = dict[str, FixedPointSums]
"""sums by stream"""


@dataclass(frozen=True, eq=False)
class Tick:
    """What a replica saw within a stretch of the clock."""

    number: int
    """counts this replica's ticks, from 1"""
    clock: int
    """milliseconds since 1970 at which it ended: the same for all replicas"""
    rows: SumsByStream


@dataclass
class Replica:
    """What is known of one."""

    taken: int = 0
    """the number of its last tick that counts"""
    clock: int = -1
    """up to which it has told all"""
    heard: float = 0.0


@dataclass
class ReportLedger:
    """All that has been taken and not closed yet."""

    timeout_seconds: float = REPLICA_TIMEOUT_SECONDS
    replicas: dict[str, Replica] = field(default_factory=dict)
    waiting: dict[int, SumsByStream] = field(default_factory=dict)
    closed: int = -1
    """the last tick of the clock that went to the watches"""
    late: int = 0
    """ticks that came when theirs was closed, and counted into the next"""
    twice: int = 0
    """ticks that came again, and did not count again"""
    lost: int = 0
    """ticks that never came: dropped by a replica, or in flight when it died"""
    died: int = 0
    gone: dict[str, int] = field(default_factory=dict)
    """the last tick that counts of each that died or left"""
    dead: list[str] = field(default_factory=list)
    """those of them that left without a word"""

    def add_report(
        self, replica_name: str, ticks: list[Tick], clock: int, now: float, leaves: bool = False, confirmed: int = 0
    ) -> int:
        """Ticks of a replica, which has told all up to `clock`; the number up to which they need not come again.

        `confirmed` is the last that it was told need not: by a ledger before this one, if it is not known here.
        """
        if replica_name not in self.replicas:
            self.replicas[replica_name] = Replica(taken=self.gone.pop(replica_name, confirmed), clock=self.closed)
        if replica_name in self.dead:  # it was only slow: what it was adding up is not lost
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
        at = max(tick.clock, self.closed + 1)
        rows = self.waiting.setdefault(at, {})
        for stream, row in tick.rows.items():
            rows[stream] = rows[stream] + row if stream in rows else row

    def pop_closed_ticks(self, now: float) -> list[tuple[int, SumsByStream]]:
        """Ticks of the clock that are complete, in order; they are closed by this."""
        for name in [name for name, one in self.replicas.items() if now - one.heard > self.timeout_seconds]:
            self._remove_replica(name)
            self.dead = [*self.dead, name][-MAX_DEPARTED_REPLICAS:]
            self.died += 1
            self.lost += 1  # the one that it was adding up when it died
        told = min((one.clock for one in self.replicas.values()), default=max(self.waiting, default=self.closed))
        ready = sorted(clock for clock in self.waiting if clock <= told)
        self.closed = max(self.closed, told)
        return [(clock, self.waiting.pop(clock)) for clock in ready]
