"""The engines others use, each in a process (and where it needs one, an environment) of its own."""
