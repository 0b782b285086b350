"""Energy counters of processors as Linux shows them, as files in a folder."""

RANGE_MICROJOULES = 262_143_328_850


def write_rapl_zone(folder, zone, name, microjoules=1_000_000):
    """Write one zone, and return the file with its counter."""
    (folder / zone).mkdir()
    (folder / zone / "name").write_text(f"{name}\n")
    (folder / zone / "max_energy_range_uj").write_text(f"{RANGE_MICROJOULES}\n")
    counter = folder / zone / "energy_uj"
    counter.write_text(f"{microjoules}\n")
    return counter


def count_joules(counter, joules):
    """Let a counter go on by so many joules, from 0 again where it passes its range."""
    counter.write_text(f"{(int(counter.read_text()) + round(joules * 1e6)) % RANGE_MICROJOULES}\n")
