"""Who may do what: API keys with roles, sessions of browsers, and protection from pages of other sites."""

import hmac
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from services.http.auth import extract_key, reject_cross_site
from services.http.errors import RequestRejected, key_is_missing, other_site_asks
from services.settings import is_loopback
from services.site.roles import Role, RoleKey, find_role_key
from services.site.sessions import LOCAL_SESSION, SESSION_COOKIE, SessionSigner, Viewer
from services.site.site_routes import SiteRoute

JSON_TYPE = "application/json"
CSRF_FIELD, CSRF_HEADER = "csrf_token", "x-csrf-token"
SAFE_METHODS = ("GET", "HEAD")

LOCAL_VIEWER = "this machine"


class SiteAccess:
    """Checks of every request before its handler is called."""

    def __init__(self, role_keys: tuple[RoleKey, ...], signer: SessionSigner) -> None:
        self.role_keys, self.signer = role_keys, signer

    @property
    def requires_key(self) -> bool:
        """Whether a key is needed; without keys, everyone on this machine may do everything."""
        return bool(self.role_keys)

    def protect(self, route: SiteRoute) -> Route:
        """Return a route that calls its handler only for a viewer with the role, from a page of this site."""

        async def checked(request: Request) -> Response:
            try:
                return await answer(request)
            finally:
                await request.close()  # the files of a form that has been read

        async def answer(request: Request) -> Response:
            self.require_own_host(request)
            viewer = request.state.viewer = self.find_viewer(request)  # a page that refuses shows who is logged in
            if route.role is not None and viewer is None:
                return ask_for_key(request)
            if request.method not in SAFE_METHODS:
                require_bounded_body(request, route.max_body_bytes)
                await self.require_own_page(request, viewer)
            if viewer is not None and route.role is not None and not viewer.may(route.role):
                raise role_is_missing(route.role, viewer)
            return await route.handler(request)

        return Route(route.path, checked, methods=[*(route.methods or ())])

    def find_viewer(self, request: Request) -> Viewer | None:
        """Return who sends a request; None without a valid key or session."""
        if not self.requires_key:
            return Viewer(role=Role.RUN, name=LOCAL_VIEWER, csrf_token=self.signer.csrf_token(LOCAL_SESSION))
        if sent_key := extract_key(request):
            entry = find_role_key(sent_key, self.role_keys)
            return Viewer(role=entry.role, name=entry.name, from_browser=False) if entry else None
        cookie = request.cookies.get(SESSION_COOKIE, "")
        entry = self.signer.find_session_key(cookie, self.role_keys)
        csrf_token = self.signer.csrf_token(cookie)
        return Viewer(role=entry.role, name=entry.name, csrf_token=csrf_token) if entry else None

    def require_own_host(self, request: Request) -> None:
        """Reject a name of this machine that another site's owner has made up, where no key protects the site."""
        host = read_host_name(request.headers.get("host", ""))
        if not self.requires_key and not is_loopback(host):
            raise RequestRejected(403, f"cannot answer at the name {host[:60]!r}: open this site at 127.0.0.1", "site")

    async def require_own_page(self, request: Request, viewer: Viewer | None) -> None:
        """Reject a request that changes something and that a page of another site may have sent."""
        reject_cross_site(request)
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
            raise other_site_asks()
        if viewer is not None and not viewer.from_browser:
            return
        if not self.requires_key and is_json(request) and request.url.path.startswith("/api/"):
            return  # a page of another site cannot send JSON without being asked for permission first
        expected = viewer.csrf_token if viewer else self.signer.csrf_token(LOCAL_SESSION)
        sent = request.headers.get(CSRF_HEADER) or (await read_form_token(request))
        if not hmac.compare_digest(sent.encode(), expected.encode()):
            raise RequestRejected(403, "cannot accept this form: its page is too old; open the page again", "site")


def read_host_name(host: str) -> str:
    """Return the name in a Host header, without its port; empty for what is no name."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # urlsplit's, for a bracket without the other
        return ""


def is_json(request: Request) -> bool:
    """Return whether a request declares a body of JSON."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == JSON_TYPE


async def read_form_token(request: Request) -> str:
    """Return the CSRF token of a form, or an empty text."""
    if is_json(request):
        return ""
    form = await request.form()
    return str(form.get(CSRF_FIELD, ""))


def require_bounded_body(request: Request, max_bytes: int) -> None:
    """Reject a body without a declared length, or with a longer one than a route takes."""
    length = request.headers.get("content-length", "0" if "transfer-encoding" not in request.headers else "")
    if not (length.isascii() and length.isdigit()):
        raise RequestRejected(411, "cannot read a body without a length: send content-length", "body")
    if int(length) > max_bytes:
        raise RequestRejected(413, f"the request has {length} bytes, the limit is {max_bytes}", "too large")


def ask_for_key(request: Request) -> Response:
    """Send a browser to the login page; reject a program without a key, and a form of a session that has ended."""
    wants_page = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"hx-redirect": "/login"})
    if wants_page and request.method not in SAFE_METHODS:
        raise RequestRejected(401, "cannot do this: you are not logged in; log in, and open the page again", "key")
    if wants_page:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?next={quote(path)}", 303)
    raise key_is_missing()


def role_is_missing(role: Role, viewer: Viewer) -> RequestRejected:
    """Build the 403 for a viewer whose key does not allow what is asked."""
    message = f"cannot do this with a key of the role {viewer.role}: it needs the role {role}; log in with such a key"
    return RequestRejected(403, message, "role")
