"""Login of people: the key is sent once, and a cookie stands for it from then on."""

import asyncio
import re

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from services.site.access import SiteAccess
from services.site.rendering import PageRenderer
from services.site.roles import find_role_key
from services.site.sessions import LOCAL_SESSION, SESSION_COOKIE, SESSION_SECONDS
from services.site.site_routes import SiteRoute, action_route, page_route

WRONG_KEY_SECONDS = 0.5  # before the next key can be tried
MAX_PATH_LENGTH = 2000  # characters
WRONG_KEY_MESSAGE = (
    "cannot log in with this key: it is not among the keys of this site; check it for missing characters"
)


class LoginPages:
    """Handlers of logging in and out."""

    def __init__(self, access: SiteAccess, renderer: PageRenderer, is_secure: bool) -> None:
        self.access, self.renderer, self.is_secure = access, renderer, is_secure

    def routes(self) -> list[SiteRoute]:
        """Return the routes of logging in and out."""
        return [
            page_route("/login", self.get_login, role=None),
            action_route("/login", self.post_login, role=None),
            action_route("/logout", self.post_logout, role=None),
        ]

    async def get_login(self, request: Request) -> Response:
        """Answer GET /login: the form that takes a key."""
        return self.render_form(request, find_next_path(request.query_params.get("next", "")))

    async def post_login(self, request: Request) -> Response:
        """Answer POST /login: begin a session of the key and lead on to the page that was asked for."""
        form = await request.form()
        next_path = find_next_path(str(form.get("next", "")))
        entry = find_role_key(str(form.get("key", "")).strip(), self.access.role_keys)
        if entry is None:
            await asyncio.sleep(WRONG_KEY_SECONDS)
            return self.render_form(request, next_path, WRONG_KEY_MESSAGE)
        response = RedirectResponse(next_path, 303)
        cookie = self.access.signer.create_session(entry.fingerprint)
        response.set_cookie(
            SESSION_COOKIE, cookie, SESSION_SECONDS, httponly=True, samesite="strict", secure=self.is_secure
        )
        return response

    async def post_logout(self, _: Request) -> Response:
        """Answer POST /logout: end the session."""
        response = RedirectResponse("/login", 303)
        response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict", secure=self.is_secure)
        return response

    def render_form(self, request: Request, next_path: str, problem: str = "") -> Response:
        """Render the form that takes a key, with what was wrong with the last one."""
        viewer = getattr(request.state, "viewer", None)
        csrf_token = viewer.csrf_token if viewer else self.access.signer.csrf_token(LOCAL_SESSION)
        status = 403 if problem else 200
        return self.renderer.render_page(
            request, "login.html", status, next_path=next_path, problem=problem, csrf_token=csrf_token
        )


def find_next_path(text: str) -> str:
    """Return the path of this site to lead on to after the login; the home page for anything else."""
    is_own = re.fullmatch(r"/(?![/\\])[^\\\x00-\x1f]*", text) is not None
    return text if is_own and len(text) <= MAX_PATH_LENGTH else "/"
