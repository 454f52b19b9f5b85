"""How reports find the actions they are about, and how rules rise and fall."""
