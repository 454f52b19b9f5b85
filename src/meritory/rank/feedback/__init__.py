"""Feedback as numbers: rubrics, quality, risk, approval and pairs."""
