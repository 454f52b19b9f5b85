"""Other libraries' interfaces on Meritory, so that trying it is one import."""
