"""Fixtures that several folders share."""

from tests.cluster import cluster

__all__ = ["cluster"]
