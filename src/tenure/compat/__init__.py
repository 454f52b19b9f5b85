"""Other libraries' interfaces on Tenure, so that trying it is one import."""
