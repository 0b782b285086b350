"""Energy counters of a machine, where it has some that a user may read."""
