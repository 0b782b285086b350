"""Deployments of the site: services of published models that it keeps running on its Ray."""
