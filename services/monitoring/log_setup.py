"""Where the service's processes write what happens."""

import logging


def configure_logger(name: str, level: int, handler: logging.Handler) -> logging.Logger:
    """One that tells nobody but its handler."""
    made = logging.getLogger(name)
    made.setLevel(level)
    made.handlers = [handler]
    made.propagate = False
    return made


def create_stderr_handler() -> logging.Handler:
    """Into the log that Ray keeps of a replica."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    return handler
