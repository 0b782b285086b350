"""Ray that `equipoise up` starts for its site, and that goes on without it."""
