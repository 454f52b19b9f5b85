"""Request and reply types of the HTTP API."""
