"""Number of replicas by the time for which they are busy."""

from services.scaling import required_replicas


def test_required_replicas_follow_the_busy_fractions():
    assert required_replicas([], 3) == 3  # no replica has reported yet
    assert required_replicas([0.0], 1) == required_replicas([0.0, 0.0], 2) == 1
    assert required_replicas([0.7], 1) == 1
    assert required_replicas([0.8], 1) == 2
    assert required_replicas([0.35, 0.35], 2) == 1
    assert required_replicas([1.0, 1.0, 1.0], 3) == 5
