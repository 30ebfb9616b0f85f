"""The paper's numbers: each has a source and a place, and one's own can be added."""

from __future__ import annotations

from statistics import fmean

import pytest
from fake_reproduction import make_plan

from fedtrain.reproduction import paper_numbers
from fedtrain.reproduction.paper_item import PAPER_ITEM_NAMES
from fedtrain.reproduction.table_layout import get_plan_panels
from theory.errors import InputError

SAME_SETTING = {"F3": "T4", "F6": "T7"}
"""A column of the figure is a table's."""


@pytest.mark.parametrize("name", PAPER_ITEM_NAMES)
def test_every_number_of_the_paper_has_a_source_and_a_place(name):
    one, held = make_plan(name), paper_numbers.load_paper_numbers(name)
    panels, rows = get_plan_panels(one), {row.name for row in one.paper_item.rows}
    for (panel, row, column), number in held.items():
        assert row in rows
        assert column in panels[panel or next(iter(panels))]
        table = SAME_SETTING.get(name, name).removeprefix("T")
        printed, recovered = f"printed in Table {table} of the paper", "recovered from the authors' plot data"
        assert number.source.startswith((printed, recovered))
        assert 0 < number.value < 100


@pytest.mark.parametrize("name", [name for name in PAPER_ITEM_NAMES if name.startswith("T")])
def test_every_table_is_held_whole(name):
    """With its spreads; rows that begin with a dash are parts of a model that the paper does not print."""
    plan, held = make_plan(name), paper_numbers.load_paper_numbers(name)
    panels, rows = get_plan_panels(plan), [row.name for row in plan.paper_item.rows if not row.name.startswith("- ")]
    cells = {(panel, row, column) for panel, columns in panels.items() for row in rows for column in columns}
    assert {(panel or next(iter(panels)), row, column) for panel, row, column in held} == cells
    assert all(number.std is not None for number in held.values())


@pytest.mark.parametrize(("figure", "table"), SAME_SETTING.items())
def test_figures_have_the_numbers_of_the_table_with_their_setting(figure, table):
    columns = {"SynthDigits": "synthdigits", "MNIST-M": "mnist_m", "Avg": "mean"}
    printed, held = paper_numbers.load_paper_numbers(table), paper_numbers.load_paper_numbers(figure)
    assert held == {place: printed["", place[1], columns[place[0]]] for place in held}
    assert {place[1] for place in held} == {row for _, row, _ in printed}
    plans = make_plan(figure), make_plan(table)
    same = {spec.identity for spec in plans[0].run_specs.values()} & {
        spec.identity for spec in plans[1].run_specs.values()
    }
    assert len(same) == len(plans[1].run_specs)  # the very runs


def test_averages_that_are_held_are_the_means_of_their_rows():
    held = paper_numbers.load_paper_numbers("F7")
    for panel in ("DomainNet", "Office-Caltech10", "Digits"):
        for row in {row for where, row, _ in held if where == panel}:
            values = {column: n.value for (where, name, column), n in held.items() if (where, name) == (panel, row)}
            assert values.pop("mean") == pytest.approx(fmean(values.values()), abs=0.011)


def test_all_printed_numbers_are_held():
    tables = [name for name in PAPER_ITEM_NAMES if name.startswith("T")]
    assert sum(len(paper_numbers.load_paper_numbers(name)) for name in tables) == 491


def by_row(name: str) -> dict[str, dict[str, paper_numbers.PaperNumber]]:
    found: dict[str, dict[str, paper_numbers.PaperNumber]] = {}
    for (_, row, column), number in paper_numbers.load_paper_numbers(name).items():
        found.setdefault(row, {})[column] = number
    return found


def test_which_printed_means_are_not_those_of_their_rows():
    """As docs/development/paper-vs-code.md says."""
    wrong = []
    for name in ("T1", "T2", "T4", "T5", "T7", "T8", "T9", "T10", "T11", "T12"):
        for row, numbers in by_row(name).items():
            mean = numbers.pop("mean").value
            if abs(mean - fmean(number.value for number in numbers.values())) > 0.1:  # what rounding can do
                wrong.append((name, row))
    assert wrong == [("T1", "FedPer"), ("T7", "SingleSet")]


def test_what_the_paper_says_of_its_own_tables():
    """The sentences of docs/development/paper-vs-code.md on claims that its tables do not quite bear."""
    for name, close in (("T1", {"amazon"}), ("T2", set()), ("T7", set())):
        rows = by_row(name)
        ours = rows["Fed-CO2"]
        for other in ("FedBN", "COPA"):
            assert {k for k, n in ours.items() if n.value <= rows[other][k].value} <= close
    rows = by_row("T10")
    fused, *models = (rows[name] for name in ("without cooperation", "Online (FedBN)", "Offline (SingleSet)"))
    below = [sum(model[k].value > fused[k].value for model in models) for k in fused if k != "mean"]
    assert (sum(map(bool, below)), max(below)) == (4, 1)
    assert by_row("T8")["SingleSet"]["real"].value > by_row("T8")["Fed-CO2"]["real"].value


KNOWN = {"T7": {"Digits": ({"FedAvg"}, {"mnist", "mean"})}}


def test_numbers_of_ones_own(tmp_path):
    path = tmp_path / "more.toml"
    path.write_text('[[T7]]\nrow = "FedAvg"\nsource = "read by me"\nvalues = { mnist = 96 }\nstd = { mnist = 0.1 }\n')
    assert paper_numbers.load_user_numbers(path, KNOWN) == {
        "T7": {("", "FedAvg", "mnist"): paper_numbers.PaperNumber(96.0, 0.1, "read by me")}
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[T6]]\n", "no table or figure of the paper; did you mean 'T7'"),
        ("[T7]\n", r"write \[\[T7\]\]"),
        ('[[T7]]\nrow = "FedAvg"\nvalues = { mnist = 1 }\n', "row and source"),
        ('[[T7]]\nrow = "FedAvg"\nsource = "s"\nvalues = { mnist = 196 }\n', "from 0 to 100"),
        ('[[T7]]\nrow = "FedAvg"\nsource = "s"\nvalues = 5\n', "are tables"),
        ('[[T7]]\nrow = "FedAvgg"\nsource = "s"\nvalues = { mnist = 1 }\n', "did you mean 'FedAvg'"),
        ('[[T7]]\nrow = "FedAvg"\nsource = "s"\nvalues = { minst = 1 }\n', "did you mean 'mnist'"),
        ('[[T7]]\nrow = "FedAvg"\nsource = "s"\nvalue = { mnist = 1 }\n', "did you mean 'values'"),
        ('[[T7]]\npanel = "x"\nrow = "FedAvg"\nsource = "s"\nvalues = { mnist = 1 }\n', "no panel"),
        ("T7 = [1]\n", "no list of tables"),
    ],
)
def test_numbers_that_are_refused(tmp_path, text, words):
    path = tmp_path / "more.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        paper_numbers.load_user_numbers(path, KNOWN)
