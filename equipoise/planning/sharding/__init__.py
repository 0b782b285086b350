"""Whether a plan divides the model among its workers: only where a whole one does not fit in memory."""
