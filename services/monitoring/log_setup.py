"""Configure the loggers of the service's processes."""

import logging


def configure_logger(name: str, level: int, handler: logging.Handler) -> logging.Logger:
    """Configure and return a logger that, with all loggers below its name, writes to one handler only."""
    named_logger = logging.getLogger(name)
    named_logger.setLevel(level)
    named_logger.handlers = [handler]
    named_logger.propagate = False
    return named_logger


def create_stderr_handler(process_name: str) -> logging.Handler:
    """Create a handler that writes to stderr, which Ray keeps as the log of a replica; lines name the process."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"%(asctime)s {process_name} %(levelname)s %(message)s"))
    return handler
