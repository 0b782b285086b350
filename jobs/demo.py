"""The story so far, on embedded data: digits, learned by two workers.

Leaves its record and a page in runs/demo.
"""

import sys
from pathlib import Path

from ray.train import TrainingFailedError

from equipoise import runs
from equipoise.trial import Trial
from jobs.train import cause, leave_page, summary, train

OUT = Path("runs/demo")
TRIAL = Trial(workload="digits", workers=2, batch=16, lr=0.05)


def main() -> int:
    """Exit status: 0 if the target was reached."""
    out = OUT.absolute()
    print("Training digits with LeNet on 2 workers x 16 examples, to 96 % on validation.\n")
    try:
        record = runs.finished(out, TRIAL) or train(TRIAL, out)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except TrainingFailedError as error:
        print(f"error: training failed: {cause(error)}", file=sys.stderr)
        return 1
    if record is None:
        print("stopped; make demo goes on from the last checkpoint")
        return 1
    print(f"\n{summary(record, out)}")
    print(f"  page       {leave_page(record, out)}")
    print("\nTry next a larger batch, and compare the seconds and the examples it took:")
    print("  .venv/bin/python -m jobs.train --workload digits --workers 2 --batch 64 --lr 0.1 --out runs/large")
    return 0 if record.reached else 1


if __name__ == "__main__":
    sys.exit(main())
