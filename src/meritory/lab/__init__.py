"""Offline evaluation on copies of a store. No other part of the package imports it."""
