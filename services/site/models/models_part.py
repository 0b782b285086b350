"""Models' part of the site: its pages, actions and endpoints, and what it adds to the home page."""

import logging
import threading
import time

from equipoise.errors import EquipoiseError
from services.site.models.deployment_actions import DeploymentActions
from services.site.models.model_api import ModelApi
from services.site.models.model_desk import ModelDesk
from services.site.models.model_pages import ModelPages
from services.site.models.person_tasks import describe_served_model, list_person_tasks
from services.site.site_parts import HomeLists, SiteContext
from services.site.site_routes import SiteRoute

APPLY_ATTEMPTS = 10
APPLY_PAUSE_SECONDS = 3.0  # while a Ray that has just been started gets ready

logger = logging.getLogger(__name__)


class ModelsPart:
    """Bundles, deployments and adaptations of the site."""

    def __init__(self, context: SiteContext) -> None:
        self.desk = ModelDesk.open(context.settings.results, context.ray, context.jobs)
        self.renderer = context.renderer
        if context.ray is not None and self.desk.manager.list_deployments():
            threading.Thread(target=self.restore_deployments, daemon=True).start()

    def routes(self) -> list[SiteRoute]:
        """Return the routes of the pages, actions and endpoints; fixed paths come before those with a name."""
        return [
            *ModelPages(self.desk, self.renderer).routes(),
            *DeploymentActions(self.desk, self.renderer).routes(),
            *ModelApi(self.desk).routes(),
        ]

    def list_home_items(self) -> HomeLists:
        """Return the models that are served, and what of them waits for a person."""
        looks = self.desk.states.list_looks()
        adaptations = {look.deployment.name: self.desk.adaptations.read_adaptation(look.deployment) for look in looks}
        return HomeLists(
            models=[*map(describe_served_model, looks)], for_a_person=list_person_tasks(looks, adaptations)
        )

    def restore_deployments(self) -> None:
        """Hand the deployments of an earlier site to Ray Serve, which keeps those that it runs already as they are."""
        for _ in range(APPLY_ATTEMPTS):
            try:
                self.desk.manager.apply_document()
            except EquipoiseError as error:
                logger.warning("cannot restore the deployments yet: %s", error)
                time.sleep(APPLY_PAUSE_SECONDS)
            else:
                return
