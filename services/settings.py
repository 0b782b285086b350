"""Settings of the services, given on the command line or in YAML."""

import ipaddress
import os
import ssl
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from equipoise.drift.reference.reference_size import DEFAULT_REQUESTS_PER_FALSE_ALARM
from equipoise.errors import EquipoiseError
from equipoise.runs.folder import require_writable
from equipoise.storage.directory import open_directory
from equipoise.storage.location import require_lasting_store
from equipoise.storage.path_errors import report_path_errors
from services.limits import Limits

WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not listened on
"""address to call for a host that means all addresses of a machine"""
DEFAULT_DRIFT_TIME_FRACTION = 0.01
WRITE_KEYS_REMEDY = "write one API key per line into it"


class ListenSettings(BaseModel):
    """Address on which a service listens, and the keys that it requires."""

    model_config = ConfigDict(
        extra="forbid", hide_input_in_errors=True
    )  # errors must not show a URL, which may be a secret

    host: str = Field("127.0.0.1", min_length=1)
    """address to listen on; 0.0.0.0 for all IPv4 addresses of this machine, which needs api_keys_file"""
    port: int = Field(8000, ge=1, le=65535)
    """TCP port to listen on"""
    api_keys_file: str | None = Field(None, min_length=1)
    """file with one API key per line, readable by its owner only"""
    certfile: str | None = Field(None, min_length=1)
    """file with the TLS certificate chain, in PEM format; needs keyfile"""
    keyfile: str | None = Field(None, min_length=1)
    """file with the private key of certfile"""

    @model_validator(mode="after")
    def require_keys_beyond_loopback(self) -> Self:
        """Require API keys when other machines can reach the service."""
        if not is_loopback(self.host) and self.api_keys_file is None:
            remedy = "give api_keys_file=FILE with one API key per line, or keep to 127.0.0.1"
            raise EquipoiseError("option-missing", f"host {self.host} is open to other machines", remedy)
        return self

    @field_validator("api_keys_file", "certfile", "keyfile")
    @classmethod
    def make_paths_absolute(cls, path: str | None) -> str | None:
        """Make paths absolute, because a replica has another working directory."""
        return path and str(Path(path).absolute())

    @property
    def url(self) -> str:
        """URL at which this machine reaches the service."""
        host = WILDCARD_HOSTS.get(self.host, self.host)
        return f"{'https' if self.certfile else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def require_tls(self) -> None:
        """Refuse a certificate without a key, a key without a certificate, and files that TLS cannot use."""
        if (self.certfile is None) != (self.keyfile is None):
            raise EquipoiseError("option-missing", "TLS needs certfile=FILE and keyfile=FILE", "give both, or none")
        if self.certfile and self.keyfile:
            try:
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.certfile, self.keyfile)
            except (OSError, ssl.SSLError) as error:
                reason = f"cannot use certfile={self.certfile} and keyfile={self.keyfile}: {error}"
                raise EquipoiseError(
                    "tls-invalid", reason, "give a certificate chain and its key in PEM format"
                ) from None

    def read_api_keys(self) -> tuple[str, ...]:
        """Read the API keys; return an empty tuple if the service requires none."""
        if self.api_keys_file is None:
            return ()
        path = Path(self.api_keys_file)
        if not path.is_file():
            raise EquipoiseError("path-kind", f"api_keys_file={path} is not a file", WRITE_KEYS_REMEDY)
        if not os.access(path, os.R_OK):
            raise EquipoiseError("path-access", f"api_keys_file={path} cannot be read by this user")
        if path.stat().st_mode & (0o007 if is_root_owned_secret(path) else 0o077):
            raise EquipoiseError("file-permissions", f"api_keys_file={path} can be read by others", f"chmod 600 {path}")
        try:
            keys = tuple(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip())
        except UnicodeDecodeError:
            raise EquipoiseError(
                "file-damaged", f"api_keys_file={path} is not a text file", WRITE_KEYS_REMEDY
            ) from None
        if not keys:
            raise EquipoiseError("file-damaged", f"api_keys_file={path} holds no key", WRITE_KEYS_REMEDY)
        return keys


class ReplicaSettings(ListenSettings):
    """Settings that a replica gets once, when it starts."""

    access_log: str | None = Field(None, min_length=1)
    """file to which each request appends a line of JSON"""
    reload_seconds: float | None = Field(None, ge=0.1, le=86400)
    """seconds between checks of the bundles: a bundle that was replaced under the same name is swapped in"""
    drift: bool = True
    """compare answered requests with the bundle's reference profile, to detect drift"""
    requests_per_false_alarm: float = Field(DEFAULT_REQUESTS_PER_FALSE_ALARM, ge=1000, le=1e9)
    """average number of requests without drift until a false alarm"""
    report_seconds: float = Field(1.0, ge=0.1, le=3600)
    """seconds between two reports of a replica to the drift monitor"""
    drift_time_fraction: float = Field(DEFAULT_DRIFT_TIME_FRACTION, ge=0.001, le=1)
    """fraction of its time that a replica spends on observing requests at most; those beyond it are only counted"""
    state_dir: str | None = Field(None, min_length=1)
    """folder in which the drift monitor keeps its state; with several nodes, one that all share"""
    webhook: str | None = None
    """URL to which drift alarms are posted, at most once an hour per stream"""
    capture_dir: str | None = Field(None, min_length=1)
    """folder or URL in which some requests with images are kept for labelling; none if not given"""
    max_captures: int = Field(500, ge=2, le=100_000)
    """maximum number of requests kept for labelling"""
    label_dir: str | None = Field(None, min_length=1)
    """folder of the labels that people give to the requests in capture_dir on the page /label; no page if not given"""
    limits: Limits = Field(default_factory=Limits)
    """limits on what clients may send"""

    @field_validator("capture_dir")
    @classmethod
    def make_capture_absolute(cls, folder_or_url: str | None) -> str | None:
        """Make a folder's path absolute; keep a URL as it is."""
        return folder_or_url if folder_or_url is None or "://" in folder_or_url else str(Path(folder_or_url).absolute())

    @field_validator("state_dir")
    @classmethod
    def reject_state_url(cls, path: str | None) -> str | None:
        """Refuse a URL: the monitor appends to its journal, which object stores do not support."""
        if path and "://" in path:
            raise EquipoiseError(
                "store-unsupported", "give a folder on a disk that all nodes share; a URL is not supported"
            )
        return path

    @field_validator("webhook")
    @classmethod
    def check_webhook_url(cls, url: str | None) -> str | None:
        """Refuse an invalid webhook URL now; errors of later requests would show parts of it in the log."""
        try:
            parts = urlsplit(url or "http://host")
            has_host_only = "@" not in parts.netloc and bool(parts.hostname) and parts.port != 0
        except ValueError as error:  # urllib's, for a port that is not a number or an unfinished [address]
            raise EquipoiseError("url-format", str(error)) from None
        plain = (url or "").isascii() and (url or "").isprintable() and " " not in (url or "")
        is_http = url is None or url.startswith(("http://", "https://"))
        if not is_http or not has_host_only or not plain:
            raise EquipoiseError(
                "url-format", "give a URL with a host and without a user, such as https://example.org/drift"
            )
        return url

    @model_validator(mode="after")
    def require_captures_to_label(self) -> Self:
        """Refuse labels without captures, and either in an object store, which has no locks for several people."""
        if self.label_dir and self.capture_dir is None:
            raise EquipoiseError("option-missing", "label_dir needs requests to label", "give capture_dir=FOLDER too")
        for location in filter(None, (self.label_dir, self.label_dir and self.capture_dir)):
            if "://" in location:
                raise EquipoiseError(
                    "store-unsupported",
                    "cannot label requests in an object store: it has no locks for several people",
                    "give folders on a disk as capture_dir and label_dir",
                )
        return self

    @field_validator("access_log", "state_dir", "label_dir")
    @classmethod
    def make_local_paths_absolute(cls, path: str | None) -> str | None:
        """Make paths absolute, because a replica has another working directory; keep a URL, which is refused."""
        return path if path is None or "://" in path else str(Path(path).absolute())

    def require_writable_access_log(self) -> None:
        """Refuse an access log that cannot be written."""
        if self.access_log:
            path = Path(self.access_log)
            is_open_already = os.path.realpath(path).startswith("/proc/")  # such as /dev/stdout
            if path.exists() and not (path.is_file() or path.is_char_device() or is_open_already):
                # opening a pipe would block
                raise EquipoiseError("path-kind", f"cannot write to access_log={path}: it is not a file")
            with report_path_errors(f"cannot write to access_log={path}"):
                path.open("a").close()

    def require_usable_folders(self) -> None:
        """Refuse folders that cannot be written, and a capture URL of an unknown kind of store."""
        if self.state_dir and self.drift:
            probe = Path(self.state_dir, f".{os.getpid()}")
            with report_path_errors(f"cannot write to state_dir={self.state_dir}"):
                probe.parent.mkdir(parents=True, exist_ok=True)
                probe.touch()
                probe.unlink()
        if self.capture_dir:
            require_lasting_store(self.capture_dir)
            open_directory(self.capture_dir)
            if "://" not in self.capture_dir:
                with report_path_errors(f"cannot use capture_dir={self.capture_dir}"):
                    require_writable(Path(self.capture_dir))
        if self.label_dir:
            with report_path_errors(f"cannot use label_dir={self.label_dir}"):
                require_writable(Path(self.label_dir))


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # ipaddress's, for a name
        return host == "localhost"


def is_root_owned_secret(path: Path) -> bool:
    """Return whether root owns a file and this process is not root, as with the secrets of a Kubernetes pod."""
    return path.stat().st_uid == 0 != os.geteuid()
