"""Learning and governance: usage, cost, feedback, releases, audit."""
