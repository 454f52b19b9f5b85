"""A recorded week of sessions, to see in a minute what Meritory does."""
