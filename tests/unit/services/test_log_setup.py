import logging
import re

import pytest

from services.monitoring.log_setup import configure_logger, create_stderr_handler


@pytest.fixture
def services_logger():
    """Return the logger of the package, and restore it afterwards."""
    logger = logging.getLogger("services")
    before = logger.level, logger.handlers, logger.propagate
    yield logger
    logger.setLevel(before[0])
    logger.handlers, logger.propagate = before[1:]


def test_every_module_logs_through_one_handler_under_the_name_of_the_process(services_logger, capsys):
    configure_logger(services_logger.name, logging.WARNING, create_stderr_handler("equipoise.service"))
    logging.getLogger("services.serving.batching").warning("first")
    logging.getLogger("services.replica").info("too detailed")
    logging.getLogger("services.replica").error("second %d", 2)
    lines = capsys.readouterr().err.splitlines()
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    assert len(lines) == 2
    assert re.fullmatch(f"{time} equipoise.service WARNING first", lines[0])
    assert re.fullmatch(f"{time} equipoise.service ERROR second 2", lines[1])


def test_second_configuration_replaces_the_first(services_logger, capsys):
    for name in ("equipoise.service", "equipoise.drift"):
        configure_logger(services_logger.name, logging.INFO, create_stderr_handler(name))
    logging.getLogger("services.monitoring.drift_actor").info("once")
    assert re.findall(r"equipoise\.\w+ INFO once", capsys.readouterr().err) == ["equipoise.drift INFO once"]


def test_lines_of_the_service_do_not_reach_the_handlers_of_other_libraries(services_logger, caplog):
    handler = logging.NullHandler()
    logger = configure_logger(services_logger.name, logging.INFO, handler)
    logging.getLogger("services.replica").info("once")
    assert caplog.records == []  # those of the root logger
    assert logger is services_logger and logger.handlers == [handler]
