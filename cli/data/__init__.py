"""``fedco2 data``: what data sets there are, which are here, and how to get the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cli.console import DATA_MISSING
from cli.data.clients import clients_command
from cli.options import FOUND_OPTIONS, Choice
from fedtrain.registry import DATASET_NAMES

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder of all data.  [default: $FEDCO2_DATA, or the user's own]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
name_argument = click.argument("name", type=Choice(DATASET_NAMES), metavar="NAME")
any_name_argument = click.argument("name", metavar="NAME")


def add_table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How data of one's own are read."""
    for option in reversed(FOUND_OPTIONS):
        command = option(command)
    return command


replace_option = click.option("--replace", is_flag=True, help="Replace what is there already.")


@click.group(short_help="List, fetch, import and check data sets.")
def data() -> None:
    """Data sets: what there is, what is here, and how to get the rest.

    \b
    Examples:
      fedco2 data list
      fedco2 data status
      fedco2 data get digits
      fedco2 data add office ~/office_caltech_10.zip
      fedco2 data add digits mnist.npz usps.bz2 train_32x32.mat
      fedco2 data add hearts t.csv --client-column hospital --target disease
      fedco2 data check digits
      fedco2 data clients --dataset cifar10 --skew dirichlet --alpha 0.3

    Data live in the folder that --data-dir gives, else $FEDCO2_DATA, else the user's own folder for data.
    """


@data.command("list")
@data_dir_option
@json_option
def list_(data_dir: Path | None, as_json: bool) -> None:
    """All data sets: domains, classes, terms, and what is here of them."""
    from cli.data.run import show_list

    show_list(data_dir, as_json)


@data.command()
@data_dir_option
@json_option
def status(data_dir: Path | None, as_json: bool) -> None:
    """The folder in use, and what it holds."""
    from cli.data.run import show_status

    show_status(data_dir, as_json)


@data.command()
@name_argument
@click.option("--domain", help="Only this one, from its own home if it has one.")
@replace_option
@data_dir_option
def get(name: str, domain: str | None, replace: bool, data_dir: Path | None) -> None:
    """Download a data set from where it is published, and import it.

    Several places are tried in turn, checksums are verified, and an interrupted download goes on where it stopped.
    $FEDCO2_MIRROR, the address of a folder with files of the same names, is asked first.
    """
    from cli.data.run import run_get

    run_get(name, domain, replace, data_dir)


@data.command()
@any_name_argument
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--domain", help="Which domain it is, where the name of the file does not tell.")
@add_table_options
@click.option("--licence", help="Of your own data, written down with them.")
@replace_option
@data_dir_option
def add(
    name: str, paths: tuple[Path, ...], domain: str | None, replace: bool, data_dir: Path | None, **reading: Any
) -> None:
    """Import files, folders or archives (zip, tar, tar.gz).

    A NAME that is none of the paper's data sets keeps data of your own under it: one folder or archive of images, CSV
    table or npz, as `fedco2 train --dataset PATH` takes it.

    \b
    What is read:
      any        npz with x_train, y_train, x_test, y_test (uint8), named
                 after its domain
      digits     FedBN's folders (MNIST/test.pkl, MNIST/partitions/...);
                 MNIST's idx files; usps.bz2 and usps.t.bz2; SVHN's
                 train_32x32.mat and test_32x32.mat; synth_train_32x32.mat
                 and synth_test_32x32.mat; folders mnist_m/train/0 ...
                 mnist_m/test/9 of images
      office     folders DOMAIN/CLASS/image, or FedBN's amazon_train.pkl,
                 amazon_test.pkl, ... with the images
      domainnet  likewise, with clipart_train.pkl, ...; classes that are not
                 used are skipped
      cifar      the python or the binary archive, or its unpacked folder

    Of two files that belong together one is enough if the other lies beside it. Pickles are read without running them.
    """
    from cli.data.run import run_add, run_keep

    given = {option: value for option, value in reading.items() if value is not None}
    if name in DATASET_NAMES:
        if given:
            raise click.UsageError(f"--{next(iter(given)).replace('_', '-')} is for data of your own, not for {name}")
        run_add(name, paths, domain, replace, data_dir)
        return
    if domain is not None or len(paths) > 1:
        raise click.UsageError(f"{name} is none of {', '.join(DATASET_NAMES)}: of your own data give one path alone")
    run_keep(name, paths[0], given, replace, data_dir)


@data.command()
@any_name_argument
@data_dir_option
@json_option
@click.pass_context
def check(ctx: click.Context, name: str, data_dir: Path | None, as_json: bool) -> None:
    """Verify every byte of what is here of a data set.

    The exit code is 3 if something is wrong or missing.
    """
    from cli.data.run import run_check

    if not run_check(name, data_dir, as_json):
        ctx.exit(DATA_MISSING)


data.add_command(clients_command)
