"""How both command lines end: one sentence on stderr and a documented exit code, whatever happens
to the output.

Invariant: output that cannot be written (a full disk, a closed descriptor, a reader that has gone)
is no bug, and leaves nothing that the interpreter would complain about when it exits. Wrong usage
is one line, without the usage text.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from typer.core import TyperGroup

DONE = 0
CANNOT = 2
INTERRUPTED = 130
"""Exit codes that both command lines share."""

UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})

SCHEDULER_LIBRARIES = frozenset(
    {"aiohttp", "kopf", "kubernetes_asyncio", "numpy", "prometheus_client", "structlog"}
)
"""What the extra `scheduler` of gangsched installs, by the name that is imported."""

Explain = Callable[[Exception], tuple[str, int] | None]
"""Maps an exception to (sentence, exit code), "" for one that is told already; None for an
exception of others.
"""


def ended(name: str, work: Callable[[], int], explain: Explain) -> int:
    """The exit code of `work`, with its output flushed; exceptions become one sentence on stderr.

    Exceptions that nobody explains are raised.
    """
    try:
        code = work()
        # Here, not at exit, where the interpreter would print a traceback of its own.
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        drop_output()  # whoever read it wants no more
        return DONE
    except SystemExit as leaving:
        # How typer and rich leave when the reader has gone.
        if not isinstance(leaving.__context__, BrokenPipeError):
            raise

        drop_output()
        return DONE
    except Exception as error:
        explained = _unwritten(error) or explain(error)
        if explained is None:
            raise

        text, code = explained
        if text:
            say(f"{name}: {text}")

    return code


def lacks_scheduler(error: Exception, extra: str) -> str | None:
    """What to install where the scheduler's libraries are missing; None for any other error."""
    if not isinstance(error, ModuleNotFoundError):
        return None

    library = (error.name or "").partition(".")[0]
    if library not in SCHEDULER_LIBRARIES:
        return None

    return f"This command runs the scheduler, whose libraries are not installed: install {extra}."


def say(sentence: str) -> None:
    """Write one line to stderr, if there is one."""
    # Python has None for a descriptor that was closed when it started.
    if sys.stderr is None:
        return

    with suppress(OSError):
        sys.stderr.write(f"{sentence}\n")
        sys.stderr.flush()


def drop_output() -> None:
    """Send what is buffered for stdout, and everything to come, to nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unwritten(error: Exception) -> tuple[str, int] | None:
    # An error with a name of a file is about that file, not about stdout.
    if (
        not isinstance(error, OSError)
        or error.filename is not None
        or error.errno not in UNWRITABLE
    ):
        return None

    drop_output()
    return f"Cannot write the answer: {os.strerror(error.errno or 0)}.", CANNOT


class CommandLine(TyperGroup):
    """A group of commands whose wrong usage is one sentence with exit code 2."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line; ends the process unless `standalone_mode` is False."""
        given = list(sys.argv[1:] if args is None else args)
        name = prog_name or str(self.name)
        call = partial(
            super().main,
            prog_name=name,
            complete_var=complete_var,
            standalone_mode=False,
            **extra,
        )

        def work() -> int:
            code = call(args=[self._switched(word) for word in given])
            return code if isinstance(code, int) else DONE

        if not standalone_mode:
            return work()

        prepared = _prepared(given)
        if prepared:
            say(f"{name}: {prepared}")
            raise SystemExit(CANNOT)

        raise SystemExit(ended(name, work, _wrong_usage))

    def _switched(self, arg: str) -> str:
        """`--switch=true` as `--switch`, which is how pflag, and so kubectl, lets one write it."""
        flag, equals, value = arg.partition("=")
        if not equals or value not in {"true", "false"} or not flag.startswith("--"):
            return arg

        switches = {}
        for command in (self, *self.commands.values()):
            for param in command.params:
                if getattr(param, "is_flag", False):
                    for option in param.opts:
                        switches[option] = param.secondary_opts

        if flag not in switches:
            return arg
        if value == "true":
            return flag

        return switches[flag][0] if switches[flag] else arg


def _prepared(args: Sequence[str]) -> str:
    """Make the streams usable; a sentence if that is impossible, or if an argument is no text."""
    if sys.stdout is None:
        return "Cannot write the answer: the standard output is closed."

    _occupy_closed_descriptors()
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 shows "?" for what it lacks.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")

    # Bytes that are no UTF-8 arrive as lone surrogates, which no request can carry.
    wrong = next(
        (
            arg
            for arg in args
            if not arg.isascii() and any("\ud800" <= char <= "\udfff" for char in arg)
        ),
        None,
    )
    if wrong is not None:
        return f"The argument {wrong!r} is not UTF-8."

    return ""


def _occupy_closed_descriptors() -> None:
    """Open /dev/null in place of standard streams that were closed, whose numbers files and sockets
    would get otherwise: libuv aborts the process when it is to close one of these.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free, so this one.
            os.open(os.devnull, os.O_RDWR)


def _wrong_usage(error: Exception) -> tuple[str, int] | None:
    """What the parser of the command line has to say, with the command whose `--help`
    explains it.
    """
    # The parser is a part of typer in some versions and a package of its own in others: known by
    # its form.
    shown = getattr(error, "format_message", None)
    if shown is None:
        return None

    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        say(context.get_help())
        return "", CANNOT

    text = " ".join(str(shown()).split()).replace("Value error, ", "").rstrip(".")
    see = f"; see `{context.command_path} --help`" if context is not None else ""
    return f"{text}{see}.", int(getattr(error, "exit_code", CANNOT))
