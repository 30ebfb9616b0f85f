"""The command ``fedco2``: its subcommands, and what becomes of an error.

Nothing heavy is imported here: ``fedco2 --help`` and shell completion must be quick.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import click
from click.shell_completion import shell_complete

from cli.adapt import adapt
from cli.completion import completion
from cli.console import BAD_INPUT, BUG, CHECK_FAILED, INTERRUPTED, PIPE_CLOSED, make_console
from cli.data import data
from cli.doctor import doctor
from cli.evaluate import evaluate
from cli.flower import flower
from cli.forecast import forecast
from cli.methods import methods
from cli.new import new
from cli.predict import predict
from cli.report import report as report_on_runs
from cli.reproduce import reproduce
from cli.theory import theory
from cli.train import train

HELP_WIDTH = 140
"""Help is laid out for the terminal, up to so many columns."""


@dataclass
class GlobalOptions:
    """What the options before the subcommand say."""

    debug: bool = False


class SuggestingGroup(click.Group):
    """A group that guesses what a misspelt subcommand was meant to be (click does so itself from 8.4 on)."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from theory.text import find_nearest_name

            near = find_nearest_name(args[0], self.list_commands(ctx))
            if near is None or "Did you mean" in error.format_message():
                raise
            raise click.UsageError(f"{error.format_message()} Did you mean {near!r}?", ctx) from None


def show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version of the installed distribution."""
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            click.echo(f"fedco2 {version('fedco2')}")
        except PackageNotFoundError:
            click.echo("fedco2, not installed (run from its source tree)")
        ctx.exit()


@click.group(
    cls=SuggestingGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH}
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version, help="Show version.")
@click.option("--debug", is_flag=True, help="Show the traceback of every error.")
@click.pass_context
def fedco2(ctx: click.Context, debug: bool) -> None:
    """Federated learning when clients' data differ: train Fed-CO2 and other methods, and verify its theory.

    \b
    Examples:
      fedco2 theory --clients 5      check the theory on five clients
      fedco2 train --dataset office  train Fed-CO2 as in the paper
      fedco2 forecast --dataset digits
                                     which method will win, before training
      fedco2 data status             which real data are here, and where
      fedco2 methods                 what each method shares, keeps and costs
      fedco2 new method NAME         a small tested package for a method of yours
      fedco2 evaluate RUN            each client's own model on its own data
      fedco2 predict RUN --client dslr photo.jpg
      fedco2 adapt RUN --data NEW    a personal part for a client never seen
      fedco2 report RUN RUN ...      tables, curves and costs of runs on one page
      fedco2 reproduce --list        every table and figure of the paper
      fedco2 flower simulate ...     the same training on Flower's nodes
      fedco2 doctor                  is this machine ready? if not, what to do
      fedco2 --debug train ...       with the traceback of an error

    \b
    Exit codes:
      0    all is well
      1    a check failed, or training diverged
      2    wrong usage or bad input
      3    data are missing or wrong
      70   a bug in fedco2
      130  interrupted
    """
    ctx.ensure_object(GlobalOptions).debug = debug


COMMANDS = (
    theory, forecast, train, evaluate, predict, adapt, reproduce, report_on_runs, flower, methods, new, data, doctor,
    completion,
)  # fmt: skip
for command in COMMANDS:
    fedco2.add_command(command)


def explain_error(error: Exception, arguments: Sequence[str] = ()) -> str | None:
    """One line for an error that the user can mend, with the flags that it is about; None for a bug."""
    ours = sys.modules.get("theory.errors")  # not loaded: then it was not raised either, and torch stays unloaded
    if ours is not None and isinstance(error, ours.InputError):
        flags = [format_flag(name) for name in error.options] or find_given_flags(str(error), arguments)
        return f"{error} ({', '.join(flags)})" if flags else str(error)
    loaded = sys.modules.get("fedtrain.extensions.references")
    if loaded is not None and (line := loaded.explain_extension_error(error)) is not None:
        return f"{line} (fedco2 --debug shows where)"
    torch_says = isinstance(error, RuntimeError) and "tried to allocate" in str(error).lower()
    if torch_says or isinstance(error, MemoryError):
        return "out of memory; make the setting smaller or free some memory"
    if isinstance(error, OSError):
        what = error.strerror or str(error) or type(error).__name__
        return f"{what}: {error.filename}" if error.filename is not None else what
    return None


def format_flag(option: str) -> str:
    """An option of the library as it is written on the command line."""
    return f"--{option.replace('_', '-')}"


def find_given_flags(text: str, arguments: Sequence[str]) -> list[str]:
    """Of the flags on the command line those whose setting an error names, for settings are not what was typed."""
    options = sys.modules.get("fedtrain.config.options")
    given = {argument.partition("=")[0] for argument in arguments}
    settings = {} if options is None else options.SETTING_FOR_OPTION
    named = {format_flag(name) for name, setting in settings.items() if re.search(rf"\b{re.escape(setting)}\b", text)}
    return sorted(named & given)


def report_error(error: Exception, debug: bool, arguments: Sequence[str] = ()) -> int:
    """Say on stderr what went wrong; the exit code."""
    line = explain_error(error, arguments)
    if line is not None and error.__cause__ is not None and getattr(error, "exit_code", None) == CHECK_FAILED:
        line += " (fedco2 --debug shows where)"  # training met an error of somebody's code
    if debug or line is None:
        traceback.print_exception(error)
    if line is None:
        print_error("this is a bug in fedco2; please report it with the lines above")
        return BUG
    print_error(line)
    return getattr(error, "exit_code", BAD_INPUT)  # DataError has its own


def report_usage_error(error: click.ClickException) -> int:
    """The usage of the command and what is wrong with it; the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
    print_error(error.format_message())
    return error.exit_code


def print_error(text: str) -> None:
    """On stderr: one line, which a terminal breaks between words."""
    from fedtrain.utils.terminal import print_paragraph

    print_paragraph(make_console(stderr=True), f"error: {text}")


def flush_stdout() -> None:
    """Drop what cannot be written (nobody reads, or the disk is full): Python would complain again while it exits."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_command(arguments: Sequence[str], settings: GlobalOptions) -> int:
    """Do what the arguments ask, or complete them for a shell; the exit code."""
    if instruction := os.environ.get("_FEDCO2_COMPLETE"):
        return shell_complete(fedco2, {}, "fedco2", "_FEDCO2_COMPLETE", instruction)
    try:
        with fedco2.make_context("fedco2", list(arguments), obj=settings) as ctx:
            fedco2.invoke(ctx)
            code = 0
    except click.exceptions.Exit as end:
        code = end.exit_code
    sys.stdout.flush()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, errors included; the exit code. Not click's own ``main``, which ends with 1 for much."""
    settings = GlobalOptions()
    given = sys.argv[1:] if arguments is None else arguments
    # Before torch is loaded: threads that wait long by spinning make a busy machine fifty times slower, threads that
    # sleep at once make a quiet one twice as slow. A short spin is best on both.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        return run_command(given, settings)
    except click.ClickException as error:
        return report_usage_error(error)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        return PIPE_CLOSED
    except Exception as error:
        return report_error(error, settings.debug, given)
    finally:
        flush_stdout()
