"""The generation log: what every reader of an answer reads."""
