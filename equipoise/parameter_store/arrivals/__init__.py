"""Log of arrivals of asynchronous workers: as it is kept, as it is read, and as simulated workers have it."""
