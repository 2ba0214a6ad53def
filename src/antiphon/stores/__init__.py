"""One folder per capability: ``base.py`` is the port, the other files are drivers."""
