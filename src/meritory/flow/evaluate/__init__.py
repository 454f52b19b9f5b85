"""Measuring what is found and shown, on copies that nobody else uses."""
