"""What a finished session teaches: judgement, labels, beliefs and comparisons."""
