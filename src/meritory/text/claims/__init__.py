"""Reading and comparing claims: same, changed or different."""
