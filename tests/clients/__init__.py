"""Packages that people have and that use torch.ao, as clients of `zeropoint.compat`; see run.py."""
