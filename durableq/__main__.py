"""`python -m durableq` is the command `durableq`."""

from durableq.cli import main

if __name__ == "__main__":
    main()
