"""Generator of the pages in docs/reference: `python -m docs.generate` writes them from the code that they describe."""
