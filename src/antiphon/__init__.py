"""Antiphon: a complete, self-hosted ChatGPT, from the chat window down to the scheduler."""

__version__ = "0.1.0"
