"""One module per claim; the last line printed is JSON. The rules are in ``docs/benchmarks/README.md``."""
