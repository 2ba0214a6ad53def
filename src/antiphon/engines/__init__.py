"""The accelerator plane: what computes tokens, and the tokenizers that give them meaning."""
