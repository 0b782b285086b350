"""Plans within limits that are moved in a browser, computed by the library."""
