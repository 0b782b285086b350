"""Plant faults in the code, one at a time, and count how many the unit and contract tests catch.

python -m tests.mutation --count 100 --seeds 1 2 3 --folder runs/mutants

It takes hours. With --folder it may be interrupted: the same command goes on, with the project as it was at the start.

A fault is caught if a test that reaches its function fails, cannot be collected, or does not end. Where the tests that
reach it take minutes, the fastest of them are run, so that no more faults are called caught than are. Faults that
change nothing (equivalent ones) are listed in equivalent.txt with their reason and are left out of the share, and so
are modules that need Ray.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.kept_results import REACH_FILE, VERDICT_FILE, KeptResults
from tests.mutation.mutations import Mutation, sample_mutations
from tests.mutation.reaching_tests import TestReach, measure_reach
from tests.mutation.warm_pytest import do_tests_pass

ROOT = Path(__file__).parents[2]
EQUIVALENT_FILE = Path(__file__).with_name("equivalent.txt")
PURE_PARTS = ["jobs/cli", "jobs/publishing", "jobs/cluster", "services/http", "services/monitoring", "dashboards"]
WORKERS = 2


def main() -> int:
    """Run the command and return exit status 0: the shares are for people to judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--packages", nargs="+", help=f"instead of equipoise, and then {' '.join(PURE_PARTS)}")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--folder", type=Path, help="keep results here, so that the same command goes on from them")
    options = parser.parse_args()
    groups = [options.packages] if options.packages else [["equipoise"], PURE_PARTS]
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        copies = make_copies(folder)
        reach = measure_reach(copies, WORKERS, KeptResults(folder / REACH_FILE))
        for test_file in sorted(reach.failing_files):
            print(f"left out, because it fails without a fault: {test_file}", flush=True)
        print(f"{len(reach.seconds_by_file)} test files took {sum(reach.seconds_by_file.values()):.0f} s", flush=True)
        verdicts = KeptResults(folder / VERDICT_FILE)
        for packages in groups:
            for seed in options.seeds:
                judge_sample(packages, options.count, seed, copies, reach, verdicts)
    return 0


def make_copies(folder: Path) -> "SimpleQueue[Path]":
    """Return copies of the project as it was when the folder was new, one for each worker."""
    original = folder / "project"
    if not original.exists():
        copy_project(folder / "copying").rename(original)
    copies: SimpleQueue[Path] = SimpleQueue()
    for index in range(WORKERS):
        copy = folder / str(index)
        shutil.rmtree(copy, ignore_errors=True)  # an interruption may have left a fault in it
        copies.put(Path(shutil.copytree(original, copy)))
    return copies


def judge_sample(
    packages: list[str],
    count: int,
    seed: int,
    copies: "SimpleQueue[Path]",
    reach: TestReach,
    verdicts: KeptResults,
) -> None:
    """Plant a sample of faults one by one and print which were caught, and their share."""
    copy = copies.get()  # as the project was when the command began
    mutations = sample_mutations(copy, packages, count, seed)
    copies.put(copy)
    equivalent = read_equivalent()
    judged = [mutation for mutation in mutations if mutation.key not in equivalent]
    caught = 0
    with ThreadPoolExecutor(WORKERS) as pool:
        results = pool.map(partial(run_in_free_copy, copies, reach, verdicts), judged)
        for mutation, is_caught in zip(judged, results, strict=True):
            caught += is_caught
            print("caught  " if is_caught else "SURVIVED", mutation, flush=True)
    share = caught / max(len(judged), 1)
    print(
        f"{' '.join(packages)}, seed {seed}: {caught} of {len(judged)} caught ({share:.0%});"
        f" {len(mutations) - len(judged)} were equivalent",
        flush=True,
    )


def read_equivalent() -> set[str]:
    """Read the faults that change nothing; a reason follows each after a tab."""
    lines = EQUIVALENT_FILE.read_text(encoding="utf-8").splitlines() if EQUIVALENT_FILE.exists() else []
    return {line.partition("\t")[0] for line in lines if line and not line.startswith("#")}


def copy_project(folder: Path) -> Path:
    """Copy what is under version control, so that faults are never planted in the project itself."""
    command = ["git", "ls-files", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def run_in_free_copy(copies: "SimpleQueue[Path]", reach: TestReach, verdicts: KeptResults, mutation: Mutation) -> bool:
    """Test a mutation in a copy that no other thread uses, unless its verdict is known."""
    if mutation.key not in verdicts.values:
        copy = copies.get()
        try:
            verdicts.add(mutation.key, is_mutation_caught(copy, reach, mutation))
        finally:
            copies.put(copy)
    return bool(verdicts.values[mutation.key])


def is_mutation_caught(copy: Path, reach: TestReach, mutation: Mutation) -> bool:
    """Return whether a test that reaches the mutated function fails."""
    path = copy / mutation.path
    source = path.read_bytes()
    groups = reach.find_test_groups(copy, mutation)  # before a statement, and what it defines, is gone
    try:
        path.write_bytes(mutation.apply(source))
        return any(not do_tests_pass(copy, group.files, group.tests) for group in groups if group.files)
    finally:
        path.write_bytes(source)


if __name__ == "__main__":
    sys.exit(main())
