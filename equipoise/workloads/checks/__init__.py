"""Checks of the parts of a workload before anything is started for it."""
