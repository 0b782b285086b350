"""How a service is started, by command line or by YAML."""

import ipaddress
import os
import ssl
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from equipoise.storage.directory import open_directory
from services.limits import Limits


class ListenSettings(BaseModel):
    """Where something listens, and who may come."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)  # a URL may be a secret

    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(8000, ge=1, le=65535)
    api_keys_file: str | None = Field(None, min_length=1)
    """a file with an API key a line, readable by its owner only"""
    certfile: str | None = Field(None, min_length=1)
    """TLS: a chain of certificates, and its key"""
    keyfile: str | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def require_keys_beyond_loopback(self) -> Self:
        """Whoever lets others in asks them for a key."""
        if not is_loopback(self.host) and self.api_keys_file is None:
            remedy = "give api_keys_file=FILE with an API key a line, or keep to 127.0.0.1"
            raise ValueError(f"host {self.host} lets others in: {remedy}")
        return self

    @field_validator("api_keys_file", "certfile", "keyfile")
    @classmethod
    def make_paths_absolute(cls, path: str | None) -> str | None:
        """The whole path: a replica works in another folder."""
        return path and str(Path(path).absolute())

    def require_tls(self) -> None:
        """Refuse what TLS cannot begin with."""
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("TLS takes certfile=FILE and keyfile=FILE: give both, or none")
        if self.certfile and self.keyfile:
            try:
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.certfile, self.keyfile)
            except (OSError, ssl.SSLError) as error:
                why = f"certfile={self.certfile} and keyfile={self.keyfile} cannot be used ({error})"
                raise ValueError(f"{why}: give a chain of certificates and its key, in PEM") from None

    def read_api_keys(self) -> tuple[str, ...]:
        """The keys that open the service; none if it asks for none."""
        if self.api_keys_file is None:
            return ()
        path = Path(self.api_keys_file)
        if not path.is_file():
            raise ValueError(f"api_keys_file={path} is not a file: write an API key a line into it")
        if path.stat().st_mode & (0o007 if is_root_owned_secret(path) else 0o077):
            raise ValueError(f"api_keys_file={path} can be read by others: chmod 600 {path}")
        try:
            found = tuple(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip())
        except UnicodeDecodeError:
            raise ValueError(f"api_keys_file={path} is not a text: write an API key a line into it") from None
        if not found:
            raise ValueError(f"api_keys_file={path} holds no key: write one a line")
        return found


class ReplicaSettings(ListenSettings):
    """What a replica is told once, when it starts."""

    access_log: str | None = Field(None, min_length=1)
    """a file to which each request adds a line of JSON"""
    reload_seconds: float | None = Field(None, ge=0.1, le=86400)
    """seconds between looks at the bundles: where another lies under the same name it is swapped in"""
    drift: bool = True
    """hold requests against the bundle's reference, once they are answered"""
    requests_per_false_alarm: float = Field(100_000, ge=1000, le=1e9)
    """requests without drift to a false alarm, on average"""
    report_seconds: float = Field(1.0, ge=0.1, le=3600)
    """seconds between two reports of a replica to the monitor"""
    state_dir: str | None = Field(None, min_length=1)
    """folder in which the monitor keeps what it knows; on several nodes, one that all share"""
    webhook: str | None = Field(None, pattern=r"^https?://")
    """URL that is told of an alarm, once an hour at most"""
    capture_dir: str | None = Field(None, min_length=1)
    """folder or URL in which some requests are kept for labelling, with their pictures; none if not given"""
    max_captures: int = Field(500, ge=2, le=100_000)
    """how many at most"""
    limits: Limits = Field(default_factory=Limits)

    @field_validator("capture_dir")
    @classmethod
    def make_capture_absolute(cls, folder_or_url: str | None) -> str | None:
        """The whole path, unless it is a URL."""
        return folder_or_url if folder_or_url is None or "://" in folder_or_url else str(Path(folder_or_url).absolute())

    @field_validator("state_dir")
    @classmethod
    def reject_state_url(cls, path: str | None) -> str | None:
        """The monitor's journal grows by small pieces, which stores of objects cannot do."""
        if path and "://" in path:
            raise ValueError("give a folder, on a disk that all nodes share; a URL cannot be one")
        return path

    @field_validator("webhook")
    @classmethod
    def check_webhook_url(cls, url: str | None) -> str | None:
        """It names a host, and no port that cannot be. What is odd would be told in an error, which is logged."""
        parts = urlsplit(url or "http://host")
        plain = (url or "").isascii() and (url or "").isprintable() and " " not in (url or "")
        if "@" in parts.netloc or not parts.hostname or parts.port == 0 or not plain:
            raise ValueError("give a URL with a host and without a user, such as https://example.org/drift")
        return url

    @field_validator("access_log", "state_dir")
    @classmethod
    def make_local_paths_absolute(cls, path: str | None) -> str | None:
        """The whole path: a replica works in another folder."""
        return path and str(Path(path).absolute())

    def require_writable_access_log(self) -> None:
        """Refuse a file that cannot be written to."""
        if self.access_log:
            try:
                Path(self.access_log).open("a").close()
            except OSError as error:
                raise ValueError(f"access_log={self.access_log} cannot be written ({error.strerror})") from None

    def require_usable_folders(self) -> None:
        """Refuse a folder for the monitor that cannot be written to, and captures in an unknown kind of store."""
        if self.state_dir and self.drift:
            try:
                Path(self.state_dir).mkdir(parents=True, exist_ok=True)
                (Path(self.state_dir) / f".{os.getpid()}").touch()
                (Path(self.state_dir) / f".{os.getpid()}").unlink()
            except OSError as error:
                raise ValueError(f"state_dir={self.state_dir} is no folder to write to ({error.strerror})") from None
        if self.capture_dir:
            open_directory(self.capture_dir)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_root_owned_secret(path: Path) -> bool:
    """Whether a file is root's and our group may read it, as Kubernetes gives a pod its secrets."""
    return path.stat().st_uid == 0 != os.geteuid()
