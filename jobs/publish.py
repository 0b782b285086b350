"""Publish the model of a run as a bundle: a folder that services load, and that answers without the training code.

The model is exported, every engine is timed and compared with PyTorch's eager one, and the fastest that answers the
same is recorded, with what the model is, how well it does, and what later requests are compared with.
"""

import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from equipoise.storage.retry import Away
from jobs.cli.engine_report import table
from jobs.cli.paths import Given, unusable
from jobs.publishing.publish import Published, PublishRequest, publish


@dataclass(frozen=True, kw_only=True)
class Asked:
    __doc__ = __doc__

    run: Given
    """folder or URL of a finished run"""
    out: Given
    """folder or URL of the bundle; must not exist"""
    name: str | None = None
    """of the model in the service; the workload's if not given"""
    plan: Given | None = None
    """plan.json that the run was made by"""
    drift: bool = True
    """find out what requests without drift look like, and what each cause of drift would do: it takes half a minute"""
    native: bool = True
    """time AOTInductor's native code beside the engines: it takes a compiler and about a minute"""

    def request(self) -> PublishRequest:
        """Say what is published, and where."""
        return PublishRequest(
            run=self.run, out=self.out, name=self.name, plan=self.plan, drift=self.drift, native=self.native
        )


def main() -> int:
    """Exit status: 0 published, 1 storage stayed away, 2 asked for what cannot be, 143 stopped."""
    asked = tyro.cli(Asked)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was begun is taken away
    try:
        told(publish(asked.request()), asked.out)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped: nothing was published", file=sys.stderr)
        return 143
    except Away as error:
        print(f"error: {error}: nothing was published", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {unusable(error)}", file=sys.stderr)
        return 2
    return 0


def told(published: Published, out: Path) -> None:
    """Print what the engines measured, and which one was chosen."""
    print(table(published.results))
    print(f"{out}: {published.engine}, for {published.why}; accuracy {published.accuracy:.4f} on the test split")
    record = published.record
    if record.ended != "reached":
        print(
            f"note: the run did not reach its target of {record.target:g} (it ended: {record.ended})", file=sys.stderr
        )


if __name__ == "__main__":
    sys.exit(main())
