"""The table of plans under the front lists them with what limits each, its device and its price."""

from dataclasses import replace

from dashboards.panels.tradeoff import plans_table
from tests.support.plan_documents import build_document, build_option, build_step_times

OPTIONS = (
    build_option(workers=1, batch=20, seconds=50.0, measured=False),
    build_option(workers=1, batch=10, seconds=40.0),
)


def test_plans_are_listed_from_the_fastest_on():
    options = (*OPTIONS, build_option(workers=4, batch=10, seconds=45.0, lr=None, binding="exchange"))
    table = plans_table(build_document(options=options))
    assert table.columns == [
        *("nodes", "workers", "batch", "global batch", "lr", "seconds", "low", "high", "worker seconds"),
        *("binding", "measured"),
    ]
    assert [row[5] for row in table.rows] == [40, 45, 50]
    assert table.rows[1] == [1, 4, 10, 40, None, 45, 36, 54, 180, "exchange", True]
    assert [row[-1] for row in table.rows] == [True, True, False]
    assert plans_table(build_document()) is None


def test_table_of_plans_names_their_devices_and_dollars():
    options = [build_option(seconds=seconds, device=device) for device, seconds in (("a10", 20.0), ("h100", 10.0))]
    table = plans_table(build_document(options=tuple(options), system=build_step_times(device="h100")))
    assert table.columns[-1] == "device" and [row[-1] for row in table.rows] == ["h100", "a10"]
    priced = [replace(option, dollars=1.5, device=None) for option in options]
    table = plans_table(build_document(options=tuple(priced)))
    assert table.columns[-1] == "dollars" and [row[-1] for row in table.rows] == [1.5, 1.5]
