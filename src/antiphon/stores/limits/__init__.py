"""Limiters: what may still be used, asked and answered in one step."""
