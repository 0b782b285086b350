"""Pipelines: each worker of a replica holds some consecutive layers of the model."""
