"""The storage contract in SQL that both backends share, one file per noun."""
