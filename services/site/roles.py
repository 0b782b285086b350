"""Roles of the people and programs that use the site, and the file of their API keys."""

import hashlib
import hmac
from dataclasses import dataclass
from enum import IntEnum

from equipoise.errors import EquipoiseError

FINGERPRINT_LENGTH = 16  # hexadecimal digits by which a session names its key


class Role(IntEnum):
    """What a key allows: a role includes those below it."""

    VIEW = 1
    LABEL = 2
    RUN = 3

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, kw_only=True)
class RoleKey:
    """API key with its role, and the name of who has it."""

    role: Role
    key: str
    name: str

    def __repr__(self) -> str:
        return f"RoleKey(role={self.role}, name={self.name!r})"  # without the key, which logs must not show

    @property
    def fingerprint(self) -> str:
        """Digest that names the key without showing it."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:FINGERPRINT_LENGTH]


def parse_role_key(line: str, number: int) -> RoleKey:
    """Parse a line of the key file: `ROLE KEY`, `ROLE KEY NAME`, or a key alone, which has the role `run`."""
    words = line.split()
    names = [str(role) for role in Role]
    if len(words) == 1 and words[0] not in names:  # a role alone is a line whose key was forgotten
        words = [str(Role.RUN), *words]
    if not 2 <= len(words) <= 3 or words[0] not in names:
        raise EquipoiseError(
            "file-damaged",
            f"cannot read line {number} of the key file: it is not ROLE KEY or ROLE KEY NAME",
            f"write one of {', '.join(names)} before each key",
        )
    role = Role[words[0].upper()]
    return RoleKey(role=role, key=words[1], name=words[2] if len(words) == 3 else f"{role} key {number}")


def find_role_key(sent_key: str, role_keys: tuple[RoleKey, ...]) -> RoleKey | None:
    """Return the key that was sent, or None; compares with all keys, so that the time reveals nothing."""
    matches = [entry for entry in role_keys if hmac.compare_digest(entry.key.encode(), sent_key.encode())]
    return matches[0] if matches else None
