"""Whole conversations in and out: imports without doubles, exports of everything a conversation has."""
