"""Page on which people label pictures: its HTTP API, and the server of `equipoise label`."""
