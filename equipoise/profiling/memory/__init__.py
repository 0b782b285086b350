"""Memory of the steps of a profiled run."""
