"""Energy counters of processors and their memory (RAPL), which Linux shows below /sys/class/powercap.

Each is a file in microjoules that begins at 0 again after its range. Since 2020 only root may read them, unless an
administrator says otherwise.
"""

from pathlib import Path

POWERCAP_FOLDER = Path("/sys/class/powercap")
ZONE_PATTERN = "intel-rapl:*"  # AMD's too; those of intel-rapl-mmio count the same packages again
COUNTED_ZONES = "package", "dram"  # cores and graphics are parts of their package, psys contains all
MICROJOULES = 1e6


class RaplCounter:
    """Counter of one package or its memory, read as joules since it was opened."""

    def __init__(self, zone: Path) -> None:
        self.energy_file = zone / "energy_uj"
        self.range_microjoules = int((zone / "max_energy_range_uj").read_text())
        self.last_microjoules = self.read_microjoules()
        self.total_microjoules = 0

    def read_microjoules(self) -> int:
        """Return the present value of the counter."""
        return int(self.energy_file.read_text())

    def read_joules(self) -> float:
        """Return the joules since the counter was opened; it must be read before it passes its range twice."""
        now = self.read_microjoules()
        passed = now - self.last_microjoules
        self.total_microjoules += passed if passed >= 0 else passed + self.range_microjoules
        self.last_microjoules = now
        return self.total_microjoules / MICROJOULES


def open_rapl_counters(folder: Path = POWERCAP_FOLDER) -> list[RaplCounter]:
    """Open the counters of all packages and memories of a machine; none where it has none, or may not read them."""
    counters = []
    for zone in sorted(folder.glob(ZONE_PATTERN)):
        try:
            if (zone / "name").read_text().startswith(COUNTED_ZONES):
                counters.append(RaplCounter(zone))
        except (OSError, ValueError):
            return []  # a sum without one of the packages would be wrong
    return counters
