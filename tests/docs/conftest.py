"""Import of Ray Serve for the tests of pages that describe the services, without the warnings of its own code."""

import warnings

with warnings.catch_warnings():  # Ray's own use of pydantic warns
    warnings.simplefilter("ignore")
    import ray.serve

__all__ = ["ray"]
