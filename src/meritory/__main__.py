"""`python -m meritory` is the command line."""

from meritory.cli import main

if __name__ == "__main__":
    main()
