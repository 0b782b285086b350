"""Panels of models in parts: the memory of a worker, and the timeline of a pipeline."""
