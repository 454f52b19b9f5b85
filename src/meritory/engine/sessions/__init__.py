"""Sessions: start, prompt and end; context, ranking, packing and ratings."""
