"""Conversations from and to files: readers of foreign formats, writers of ours, and the stories of an import and an export."""
