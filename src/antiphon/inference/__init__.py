"""The inference control plane: gateway, fleet, and the replica's own scheduler."""
