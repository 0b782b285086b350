"""The column on devices in tables of measurements."""

import pytest

from equipoise.planning.build_document import read_request
from equipoise.planning.devices.device_rows import list_devices
from equipoise.planning.measurements import read_step_times
from tests.support.errors import raises_code

HEADER = "nodes,workers,batch,seconds,device\n"
ROWS = "1,1,8,0.1,a10\n1,1,16,0.2, a10 \n1,1,8,0.05,\n1,1,16,0.1,\n"


def write_table(folder, text):
    path = folder / "system.csv"
    path.write_text(text)
    return path


def test_names_are_stripped_and_may_be_empty(tmp_path):
    table = read_step_times(write_table(tmp_path, HEADER + ROWS))
    assert list_devices(table) == ["a10", ""]
    assert list_devices(table.drop(columns="device")) == [""] and list_devices(None) == []


@pytest.mark.parametrize(
    ("header", "row", "code", "message"),
    [
        (HEADER, "1,1,8,0.1,h100\n", "measurements-missing", "row 6: it is the only row of h100"),
        (HEADER, f"1,1,8,0.1,{'h' * 61}\n", "table-invalid", "row 6, column device"),
        (HEADER, "1,1,8,0.1,h\x1b[31m\n", "table-invalid", "row 6, column device"),
        (HEADER.replace("batch", "device,batch"), "", "table-invalid", "two columns named device"),
    ],
)
def test_bad_names_are_refused_in_one_sentence(tmp_path, header, row, code, message):
    rows = ROWS if "device,batch" not in header else ROWS.replace("1,1,", "1,1,a10,")
    with raises_code(code, message):
        read_step_times(write_table(tmp_path, header + rows + row))


def test_only_row_without_a_device_is_refused(tmp_path):
    with raises_code("measurements-missing", "the only row of the device without a name"):
        read_request(system=write_table(tmp_path, HEADER + ROWS.replace("1,1,16,0.1,\n", "")))
