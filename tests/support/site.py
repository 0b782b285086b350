"""The site on a real port without Ray, and a client that uses it as a program or as a browser does."""

import json
import re
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlencode

from jobs.cluster.processes import find_free_ports
from services.site.settings import SiteSettings
from services.site.site_server import start_site

CSRF_VALUE = re.compile(r'name="csrf_token" value="([0-9a-f]+)"')

REQUEST_SECONDS = 200  # the first deployment on a Ray starts Serve's controller


@contextmanager
def serve_site(results, keys=None, part_builders=None, **options):
    """Serve the site of a results folder until the end of the block, and yield its client.

    `keys` are the lines of the key file, such as ["run secret1", "view secret2"].
    """
    results.mkdir(parents=True, exist_ok=True)
    if keys:
        file = results.parent / "site-keys"
        file.write_text("\n".join(keys))
        file.chmod(0o600)
        options["api_keys_file"] = str(file)
    (port,) = find_free_ports(1)
    server = start_site(SiteSettings(results=results, port=port, **options), part_builders)
    try:
        yield SiteClient(port)
    finally:
        server.close(5)


class SiteClient:
    """Client of a site; a form is posted with the CSRF token of a page, JSON with a key."""

    def __init__(self, port):
        self.port, self.cookie = port, ""
        self.url = f"http://127.0.0.1:{port}/"

    def request(self, method, path, body=None, **headers):
        """Return the response and its body; header names are given with underscores for hyphens."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_SECONDS)
        sent = {name.replace("_", "-"): text for name, text in headers.items()}
        if self.cookie:
            sent.setdefault("cookie", self.cookie)
        try:
            connection.request(method, path, body, sent)
            reply = connection.getresponse()
            return reply, reply.read()
        finally:
            connection.close()

    def page(self, path, **headers):
        """Return the status and the HTML of a page."""
        reply, body = self.request("GET", path, **{"accept": "text/html", **headers})
        return reply.status, body.decode()

    def submit(self, path, fields, token=None, **headers):
        """Post a form with the CSRF token of the login page or the one given; return the response and its HTML."""
        token = self.csrf_token() if token is None else token
        body = urlencode([*dict(fields).items(), ("csrf_token", token)])
        form = {"content_type": "application/x-www-form-urlencoded", "accept": "text/html"}
        reply, content = self.request("POST", path, body, **form | headers)
        return reply, content.decode()

    def csrf_token(self, path="/login"):
        """Return the CSRF token of a page."""
        return CSRF_VALUE.search(self.page(path)[1])[1]

    def log_in(self, key):
        """Begin a session, and keep its cookie."""
        reply, _ = self.submit("/login", {"key": key})
        self.cookie = reply.getheader("set-cookie", "").partition(";")[0]
        return reply.status

    def api(self, method, path, payload=None, key=None):
        """Send JSON, and return the status and the parsed answer."""
        headers = {"content_type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        body = None if payload is None else json.dumps(payload)
        reply, content = self.request(method, path, body, **headers)
        return reply.status, json.loads(content)
