"""Learned scorers and how they are trained, judged and kept; numpy only."""
