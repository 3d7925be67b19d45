"""`python -m seqloom` is the command `seqloom`."""

from seqloom.cli.main import run

if __name__ == "__main__":
    run()
