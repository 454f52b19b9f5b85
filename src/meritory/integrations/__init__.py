"""Meritory inside agent frameworks; each module needs the extra of its name and nothing else."""
