"""Terminal table of the engines that were timed for a bundle."""

from equipoise.bundle.engine_benchmark import BASELINE_ENGINE, BENCHMARK_BATCH_SIZES
from equipoise.bundle.engine_results import EngineResult


def format_engine_table(engine_results: list[EngineResult]) -> str:
    """Format the engines as a table: milliseconds per call, ratio to the baseline and largest error, a line each."""
    base = next(result.seconds for result in engine_results if result.engine == BASELINE_ENGINE)
    lines = [
        f"{'engine':22}" + "".join(f"{f'batch {batch}':>22}" for batch in BENCHMARK_BATCH_SIZES) + f"{'error':>12}"
    ]
    for result in engine_results:
        if result.seconds is None or base is None:
            lines.append(f"{result.engine:22}  does not run here: {result.why_not}")
            continue
        cells = [
            f"{result.seconds[n] * 1e3:9.3f} ms {result.seconds[n] / base[n]:5.2f}x" for n in BENCHMARK_BATCH_SIZES
        ]
        lines.append(f"{result.engine:22}" + "".join(f"{cell:>22}" for cell in cells) + f"{result.error:12.1e}")
    return "\n".join(lines)
