"""Observation of training loops that are not ours: where the time of a step goes, and the gradient noise scale."""
