"""`python -m gangsched`: the same as the console script."""

from gangsched.cli import main

if __name__ == "__main__":
    main()
