"""Bundles, deployments, verdicts, labels and adaptation on the site."""
