"""Publish the model of a run as a bundle: a folder that services load, and that answers without the training code.

The model is exported, every engine is timed and compared with PyTorch's eager one, and the fastest that answers the
same is recorded, with what the model is, how well it does, and what later requests are compared with.
"""

import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from equipoise.storage.retry import StoreUnavailable
from jobs.cli.engine_report import format_engine_table
from jobs.cli.paths import PathOrUrl, describe_os_error
from jobs.publishing.publish import Published, PublishRequest, publish_bundle


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    __doc__ = __doc__

    run: PathOrUrl
    """folder or URL of a finished run"""
    out: PathOrUrl
    """folder or URL of the bundle; must not exist"""
    name: str | None = None
    """of the model in the service; the workload's if not given"""
    plan: PathOrUrl | None = None
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
    asked = tyro.cli(PublishOptions)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was begun is taken away
    try:
        told(publish_bundle(asked.request()), asked.out)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped: nothing was published", file=sys.stderr)
        return 143
    except StoreUnavailable as error:
        print(f"error: {error}: nothing was published", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {describe_os_error(error)}", file=sys.stderr)
        return 2
    return 0


def told(published: Published, out: Path) -> None:
    """Print what the engines measured, and which one was chosen."""
    print(format_engine_table(published.results))
    print(f"{out}: {published.engine}, for {published.why}; accuracy {published.accuracy:.4f} on the test split")
    record = published.record
    if not record.reached:
        print(
            f"note: the run did not reach its target of {record.target:g} (status: {record.outcome})", file=sys.stderr
        )


if __name__ == "__main__":
    sys.exit(main())
