"""Generations: accepting turns, claiming, checkpointing, finalising."""
