"""The edge and session plane: HTTP, sign-in, event streams."""
