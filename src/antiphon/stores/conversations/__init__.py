"""Conversations: the tree, its head, and the sidebar."""
