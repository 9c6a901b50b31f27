"""`python -m snowball` is the command `snowball`."""

from snowball.cli import main

if __name__ == "__main__":
    main()
