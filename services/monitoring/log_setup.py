"""Configure the loggers of the service's processes."""

import logging


def configure_logger(name: str, level: int, handler: logging.Handler) -> logging.Logger:
    """Configure and return a logger that writes to one handler only."""
    named_logger = logging.getLogger(name)
    named_logger.setLevel(level)
    named_logger.handlers = [handler]
    named_logger.propagate = False
    return named_logger


def create_stderr_handler() -> logging.Handler:
    """Create a handler that writes to stderr, which Ray keeps as the log of a replica."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    return handler
