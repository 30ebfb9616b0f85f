"""``fedco2 completion``: let the shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from cli.options import Choice


@click.command()
@click.argument("shell", type=Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL.

    Put it where your shell looks for it, then start a new shell:

    \b
      bash   fedco2 completion bash > ~/.fedco2-completion
             (with . ~/.fedco2-completion in ~/.bashrc)
      zsh    fedco2 completion zsh > ~/.zfunc/_fedco2
             (with fpath+=(~/.zfunc) before compinit in ~/.zshrc)
      fish   fedco2 completion fish > ~/.config/fish/completions/fedco2.fish

    Make the folder first if it is not there. bash needs version 4.4 or newer.
    """
    script = get_completion_class(shell)
    assert script is not None  # Choice has seen to it
    click.echo(script(ctx.find_root().command, {}, "fedco2", "_FEDCO2_COMPLETE").source())
