"""One file per schema version, ``NNNN_what.py``."""
