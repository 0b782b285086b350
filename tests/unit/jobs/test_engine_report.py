"""Table of the engines that were timed for a bundle."""

from equipoise.bundle.engine_results import EngineResult
from jobs.cli.engine_report import format_engine_table

EAGER = EngineResult("eager", {1: 0.002, 8: 0.008}, 0.0, True)
ONNX = EngineResult("onnxruntime", {1: 0.001, 8: 0.01}, 2.5e-7, True)
MISSING = EngineResult("aotinductor", None, None, False, "OSError: no compiler")


def test_engines_are_compared_with_eager_wherever_it_stands():
    for results in ([EAGER, ONNX], [ONNX, EAGER]):
        header, *rows = (line.split() for line in format_engine_table(results).splitlines())
        assert header == ["engine", "batch", "1", "batch", "8", "error"]
        assert sorted(rows) == [
            ["eager", "2.000", "ms", "1.00x", "8.000", "ms", "1.00x", "0.0e+00"],
            ["onnxruntime", "1.000", "ms", "0.50x", "10.000", "ms", "1.25x", "2.5e-07"],
        ]


def test_columns_end_where_their_headings_end():
    header, row = format_engine_table([EAGER]).splitlines()
    assert len(header) == len(row)
    for heading, cell in (("batch 1", "2.000 ms  1.00x"), ("batch 8", "8.000 ms  1.00x"), ("error", "0.0e+00")):
        assert header.index(heading) + len(heading) == row.index(cell) + len(cell)


def test_engine_that_does_not_run_is_listed_with_its_reason():
    *_, last = format_engine_table([EAGER, MISSING]).splitlines()
    assert last.split(maxsplit=1) == ["aotinductor", "does not run here: OSError: no compiler"]


def test_without_eager_nothing_is_compared():
    without_eager = EngineResult("eager", None, None, False, "RuntimeError: x")
    _, *rows = format_engine_table([ONNX, without_eager]).splitlines()
    assert len(rows) == 2 and all("does not run here" in row for row in rows)
