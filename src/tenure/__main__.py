"""`python -m tenure` is the command line."""

from tenure.cli import main

if __name__ == "__main__":
    main()
