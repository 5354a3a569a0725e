"""`python -m shardsift`: the command `shardsift`."""

from shardsift.cli import main

if __name__ == "__main__":
    main()
