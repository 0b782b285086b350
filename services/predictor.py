"""A replica: it holds models, and listens for requests by itself.

Ray places it, watches its health, restarts it and scales it. No picture goes through Ray: a proxy or a handle would
cost several times the CPU of the answer itself.
"""

import asyncio
import logging
from typing import Any

from services.endpoints import Service
from services.listener import Listener
from services.metrics import Metrics, prepare
from services.models import Models, Wanted
from services.settings import Settings

DRAIN_SECONDS = 20.0

log = logging.getLogger("equipoise.service")


class Predictor:
    """One replica."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import torch

        self.settings = Settings(**settings)
        torch.set_num_threads(1)  # as engines were timed; replicas are as many as cores
        self.limits = self.settings.limits
        prepare()
        self.metrics = Metrics()
        self.service: Service | None = None
        asked = self.settings
        self.listener = Listener(asked.host, asked.port, asked.certfile, asked.keyfile)

    async def reconfigure(self, wanted: dict[str, Any]) -> None:
        """Swap to the bundles that are wanted now; requests go on meanwhile."""
        await asyncio.to_thread(self._reconfigure, {name: Wanted(**one) for name, one in wanted.items()})

    def _reconfigure(self, wanted: dict[str, Wanted]) -> None:
        if self.service is None:
            self.service = self.listener.start(lambda loop: self._service(loop, wanted))
            return
        models = self.service.models
        try:
            models.apply(wanted)
            models.not_loaded = None
        except ValueError as error:  # what answered goes on to answer
            models.not_loaded = str(error)
            log.error("nothing was swapped: %s", error)
        self.metrics.swaps.labels("refused" if models.not_loaded else "done").inc()

    def _service(self, loop: asyncio.AbstractEventLoop, wanted: dict[str, Wanted]) -> Service:
        models = Models(self.limits, loop, self.metrics.batch)
        models.apply(wanted)
        return Service(models, self.limits, self.metrics, self.settings.secrets(), self.settings.access_log)

    def check_health(self) -> None:
        """Raises if nothing answers here any more."""
        if self.service is not None and not self.listener.alive:
            raise RuntimeError("the HTTP server has ended")

    def __del__(self) -> None:
        """Ray's way to say that a replica is to end: those under way are answered first."""
        if service := getattr(self, "service", None):
            service.draining = True
        if listener := getattr(self, "listener", None):
            listener.close(DRAIN_SECONDS)
