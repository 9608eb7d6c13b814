"""Part of a look-alike of PyTorch."""
