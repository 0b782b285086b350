"""Sessions of browsers: signed cookies that name a key without holding it, and the CSRF token of each."""

import hashlib
import hmac
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from services.site.roles import FINGERPRINT_LENGTH, Role, RoleKey

SESSION_COOKIE = "equipoise_session"
SESSION_SECONDS = 7 * 86400  # until one logs in again
SECRET_BYTES = 32
NONCE_BYTES = 12
LOCAL_SESSION = "local"  # of all browsers, where no keys are set or nobody has logged in yet


@dataclass(frozen=True, kw_only=True)
class Viewer:
    """Who sends a request: the role and name of the key, and the token that forms of the pages carry."""

    role: Role
    name: str
    csrf_token: str = ""
    from_browser: bool = True
    """whether a cookie named the key, so that a page of another site could have sent the request"""

    def may(self, role: Role) -> bool:
        """Return whether the viewer has a role or a higher one."""
        return self.role >= role

    @property
    def may_run(self) -> bool:
        """Whether the viewer may start jobs; for templates."""
        return self.may(Role.RUN)

    @property
    def may_label(self) -> bool:
        """Whether the viewer may write labels and notes; for templates."""
        return self.may(Role.LABEL)


class SessionSigner:
    """Signer of session cookies and CSRF tokens, with a secret that outlives the site's process."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def create_session(self, fingerprint: str, now: float | None = None) -> str:
        """Create the cookie of a session of the key with this fingerprint."""
        expires = int((time.time() if now is None else now) + SESSION_SECONDS)
        content = f"{fingerprint}.{expires}.{secrets.token_hex(NONCE_BYTES)}"
        return f"{content}.{self.sign('session', content)}"

    def find_session_key(self, cookie: str, role_keys: tuple[RoleKey, ...], now: float | None = None) -> RoleKey | None:
        """Return the key of a session; None if the cookie is not ours, too old, or its key is no longer valid."""
        content, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self.sign("session", content).encode()):
            return None
        fingerprint, expires, _ = content.split(".")
        if len(fingerprint) != FINGERPRINT_LENGTH or int(expires) < (time.time() if now is None else now):
            return None
        return next((entry for entry in role_keys if entry.fingerprint == fingerprint), None)

    def csrf_token(self, session: str) -> str:
        """Return the token that forms of a session carry."""
        return self.sign("csrf", session)

    def sign(self, purpose: str, content: str) -> str:
        """Return the signature of a text for a purpose."""
        return hmac.new(self.secret, f"{purpose}:{content}".encode(), hashlib.sha256).hexdigest()


def load_secret(file: Path) -> bytes:
    """Read the secret of the site, or create it in a file that only its owner can read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        secret = file.read_bytes()
        if len(secret) == SECRET_BYTES:
            return secret
        file.unlink()  # a site was killed while it wrote
        return load_secret(file)
    secret = secrets.token_bytes(SECRET_BYTES)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(secret)
    return secret
