"""Build hooks of the documentation: commands, and the options of ``fedtrain.train``, are described by themselves."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

import click

COMMANDS, TRAIN_OPTIONS = "<!-- commands -->", "<!-- train options -->"
SHORT_CODE = re.compile(r"<code>([^<\n]{1,30})</code>")


def on_page_content(html: str, **_: Any) -> str:
    """Keep options and names in one piece, where a browser would break them at a hyphen."""
    return SHORT_CODE.sub(r'<code class="short">\1</code>', html)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put all commands, and the options of training, where the page asks for them."""
    for place, build in ((COMMANDS, reference), (TRAIN_OPTIONS, train_options)):
        if place in markdown:
            markdown = markdown.replace(place, "\n".join(build()))
    return markdown


def train_options() -> Iterator[str]:
    """A table of the keywords that stand for settings."""
    from fedtrain.config import options

    yield "| option | type | setting | meaning |\n|---|---|---|---|"
    (fields,) = ast.parse(inspect.getsource(options.TrainOptions)).body
    body = fields.body if isinstance(fields, ast.ClassDef) else []
    for field, text in zip(body[1::2], body[2::2], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            name, meaning = ast.unparse(field.target), ast.literal_eval(text.value)
            kind = ast.unparse(field.annotation).removeprefix("Literal").strip("[]").replace("'", '"')
            yield f"| `{name}` | `{kind}` | `{options.SETTING_FOR_OPTION[name]}` | {meaning} |"


def reference() -> Iterator[str]:
    """A section for every command that can be run."""
    from cli import main

    root = next(group for group in vars(main).values() if isinstance(group, click.Group) and group.name == "fedco2")
    yield from section(root, "fedco2", 2)


def section(command: click.Command, path: str, level: int) -> Iterator[str]:
    """The usage, help and options of a command, then its subcommands."""
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield f"{'#' * level} {path}\n\n```text\n{usage}\n```\n"
    yield from help_text(command.help or "")
    options = [record for one in command.params if (record := row(one, context))]
    if options:
        yield "\n| option | meaning |\n|---|---|"
        yield from options
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (inner := command.get_command(context, name)) and not inner.hidden:
                yield from section(inner, f"{path} {name}", min(level + 1, 3))


def help_text(text: str) -> Iterator[str]:
    """Paragraphs; those that click must not wrap are shown as they are."""
    for block in inspect.cleandoc(text).split("\n\n"):
        if block.startswith("\b"):
            title, _, body = block.lstrip("\b\n").partition("\n")
            if body and not title.startswith(" "):
                yield f"{title}\n"
            yield f"```text\n{inspect.cleandoc(body if body else title)}\n```\n"
        else:
            yield f"{block}\n"


def row(parameter: click.Parameter, context: click.Context) -> str | None:
    """A line of the table of options."""
    if not isinstance(parameter, click.Option) or parameter.hidden:
        return None
    record = parameter.get_help_record(context)
    if record is None:
        return None
    names, meaning = (part.replace("|", "\\|").replace("\n", " ") for part in record)
    return f"| `{names}` | {meaning} |"
