"""Composition: configuration, wiring, roles, start, drain. The only layer that names concrete drivers."""
