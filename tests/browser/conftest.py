"""Fixtures for the tests of the labelling page."""

from tests.support.labelling_person import client, open_page, serve_page

__all__ = ["client", "open_page", "serve_page"]
