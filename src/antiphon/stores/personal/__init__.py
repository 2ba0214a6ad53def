"""What a user wants in every conversation."""
