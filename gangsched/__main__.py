"""The console script, and `python -m gangsched`."""

import gc


def main() -> None:
    """Run the command line; ends the process with the command's exit code."""
    gc.disable()  # imports make many objects and no garbage
    from gangsched import cli

    gc.freeze()
    gc.enable()
    cli.main()


if __name__ == "__main__":
    main()
