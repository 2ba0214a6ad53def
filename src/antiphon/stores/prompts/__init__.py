"""What prompts are made of beside messages."""
