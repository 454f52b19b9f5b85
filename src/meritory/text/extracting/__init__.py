"""What a finished transcript says outright that is worth keeping, read without any model."""
