"""The learned ranking: state, status, administration, training and explanations."""
