"""Benchmarks: zeropoint against its peers, as ratios measured in the same run."""
