"""Between a message and a prompt: accepting, assembling, running turns."""
