"""Share links: frozen pictures of a conversation that anybody with the link may read."""
