"""Settings of the site: what `equipoise up` gives it."""

from pathlib import Path

from pydantic import Field

from equipoise.errors import EquipoiseError
from jobs.site_ray.detached_ray import STATE_FOLDER
from services.settings import ListenSettings
from services.site.roles import RoleKey, parse_role_key


class SiteSettings(ListenSettings):
    """Where the site listens, the results that it shows and the Ray that runs its jobs."""

    results: Path
    """folder of the results, absolute"""
    port: int = Field(8080, ge=1, le=65535)
    """TCP port to listen on"""
    ray_dashboard: str | None = None
    """URL of the dashboard of the Ray on which jobs run; None: the site shows results alone"""
    ray_token: str | None = Field(None, repr=False)
    """token that this Ray asks of its clients"""

    @property
    def state_folder(self) -> Path:
        """Folder of the site's own state."""
        return self.results / STATE_FOLDER

    def read_role_keys(self) -> tuple[RoleKey, ...]:
        """Read the API keys with their roles; return an empty tuple if none are required."""
        keys = tuple(parse_role_key(line, number) for number, line in enumerate(self.read_api_keys(), 1))
        if len({entry.key for entry in keys}) < len(keys):
            raise EquipoiseError(
                "file-damaged", f"api_keys_file={self.api_keys_file} holds a key twice", "remove one of the lines"
            )
        return keys
