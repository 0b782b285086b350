"""Callbacks by which trainers of other libraries are observed; each module needs the package that it is named after."""
