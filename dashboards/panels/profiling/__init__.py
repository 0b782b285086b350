"""Panels of the profile of a run: parts of a step, timeline, layers, roofline and advice."""
