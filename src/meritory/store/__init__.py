"""One storage contract and the backends behind it; no SQL lives anywhere else."""
