"""Export a page that runs a published model in the browser, without a service: boxes or classes of pictures.

The folder in --out holds the page, the model and onnxruntime-web; any web server for files serves it, also one without
a network. Pictures come from a file, the clipboard or the camera, and stay on the device. The answers are those of the
bundle. --out appears only when it is complete: after an interruption run the same command again.

Exit status: 0 exported; 1 the object store did not answer; 2 wrong options or files; 143 stopped.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import sys
from dataclasses import dataclass

from equipoise.bundle.folder import verify_bundle
from equipoise.command_line import command
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import download_folder
from equipoise.storage.user_paths import require_local_paths
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import LocalPath, OptionalLocalPath, PathOrUrl, validate_locations
from jobs.publishing.browser.page_folder import write_page_folder
from jobs.publishing.browser.page_manifest import build_page_manifest
from jobs.publishing.browser.runtime_files import open_runtime


@dataclass(frozen=True, kw_only=True)
class ExportPageOptions:
    __doc__ = __doc__

    bundle: PathOrUrl
    """folder or URL of a published model of images"""
    out: LocalPath
    """folder of the page; must not exist"""
    runtime: OptionalLocalPath = None
    """folder of an installed onnxruntime-web; npm fetches it if not given"""

    def validate(self) -> None:
        """Refuse paths that cannot be used."""
        require_local_paths({"--out": self.out, "--runtime": self.runtime})
        validate_locations(self.bundle)
        if self.out.exists():
            raise EquipoiseError(
                "path-exists", f"cannot write {self.out}: it exists already", "give another name, or remove it"
            )


@command(on_stop="stopped: nothing was exported", on_store_failure="nothing was exported")
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(ExportPageOptions)
    options.validate()
    folder = download_folder(options.bundle)
    manifest = verify_bundle(folder)
    build_page_manifest(manifest)  # refuses other kinds before npm is asked
    with open_runtime(options.runtime) as runtime:
        size = write_page_folder(folder, manifest, runtime, options.out)
    print(f"{options.out}: page of {manifest.name} {manifest.version}, {size / 1e6:.1f} MB")
    print(f"serve it: python3 -m http.server --bind 127.0.0.1 --directory {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
