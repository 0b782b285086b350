"""Run jobs.adapt in this process."""

from jobs.adapt import main


def run_adapt(*arguments):
    """Run jobs.adapt and return its exit status."""
    return main([str(argument) for argument in arguments])
