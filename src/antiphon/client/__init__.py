"""The Python client library; it knows only the public API."""
