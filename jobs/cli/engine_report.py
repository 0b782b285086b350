"""What the engines of a bundle measured, for people."""

from equipoise.bundle.engine_benchmark import BASELINE_ENGINE, BENCHMARK_BATCH_SIZES, EngineResult


def format_engine_table(engine_results: list[EngineResult]) -> str:
    """Lay out what the engines measured, a line each."""
    base = next(one.seconds for one in engine_results if one.engine == BASELINE_ENGINE)
    lines = [
        f"{'engine':22}" + "".join(f"{f'batch {batch}':>22}" for batch in BENCHMARK_BATCH_SIZES) + f"{'error':>12}"
    ]
    for one in engine_results:
        if one.seconds is None or base is None:
            lines.append(f"{one.engine:22}  does not run here: {one.why_not}")
            continue
        cells = [f"{one.seconds[n] * 1e3:9.3f} ms {one.seconds[n] / base[n]:5.2f}x" for n in BENCHMARK_BATCH_SIZES]
        lines.append(f"{one.engine:22}" + "".join(f"{cell:>22}" for cell in cells) + f"{one.error:12.1e}")
    return "\n".join(lines)
