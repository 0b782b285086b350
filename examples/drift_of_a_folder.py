"""Check every day's folder of images for drift without a service, as a nightly job would, and act on the verdict.

    python examples/drift_of_a_folder.py bundles/vending photos/monday photos/tuesday

Each folder gets a line, and a page with the images that changed most in OUT/FOLDER/drift.html. The exit status is that
of the worst folder: 0 no drift, 4 too few images for a verdict, 3 drift.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SEVERITY = {"ok": 0, "unknown": 1, "drift": 2}
EXIT_STATUS = {"ok": 0, "unknown": 4, "drift": 3}


def check_folder(bundle: str, images: Path, out: Path) -> dict[str, Any]:
    """Run `equipoise check` and return its verdict; pages and verdict.json go to `out`."""
    command = [sys.executable, "-m", "jobs.check", "--bundle", bundle, "--data", images, "--out", out, "--json"]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if result.returncode not in EXIT_STATUS.values():
        raise SystemExit(result.returncode)  # the command has said why
    return json.loads(result.stdout)


def describe_verdict(verdict: dict[str, Any]) -> str:
    """Return one line: the state, the cause with its size, and the accuracy that is left."""
    causes = [f"{effect['cause']} ({effect['detail']})" for effect in verdict["effects"]]
    accuracy = verdict.get("accuracy")
    left = f"; accuracy about {accuracy['value']:.0%}" if isinstance(accuracy, dict) else ""
    reason = " and ".join(causes) or verdict["why"]
    return f"{verdict['state']}: {reason}{left}"


def main() -> int:
    """Check the folders named on the command line and return the exit status of the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", help="folder or URL of a published model")
    parser.add_argument("folders", nargs="+", type=Path, help="folders of images")
    parser.add_argument("--out", type=Path, default=Path("runs/drift"), help="folder for the pages")
    arguments = parser.parse_args()
    states = []
    for folder in arguments.folders:
        verdict = check_folder(arguments.bundle, folder, arguments.out / folder.name)
        print(f"{folder}: {describe_verdict(verdict)}")
        states.append(verdict["state"])
    return EXIT_STATUS[max(states, key=SEVERITY.__getitem__)]


if __name__ == "__main__":
    sys.exit(main())
