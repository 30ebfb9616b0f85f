"""Code by name: files, modules and plug-ins are found, failures are one line, and nothing is loaded unasked."""

import sys

import pytest

from fedtrain.extensions import references
from fedtrain.extensions.errors import ExtensionError
from fedtrain.extensions.references import (
    find_by_value,
    find_extension,
    list_hidden,
    list_installed,
    register,
    resolve,
    shorten_reference,
)
from theory.errors import InputError


def test_a_file_and_its_module_are_one_thing(write):
    path = write("mine_a.py", "class Mine:\n    class Inner: ...\n")
    by_file, by_path = resolve("method", "./mine_a.py:Mine"), resolve("method", f"{path}:Mine")
    by_module = resolve("method", "mine_a:Mine")
    assert by_file is by_path is by_module
    assert (by_file.name, by_file.file) == ("mine_a:Mine", path)
    assert resolve("method", "mine_a:Mine.Inner").value is by_file.value.Inner
    assert find_by_value("method", by_file.value) is by_file
    assert find_by_value("model", by_file.value) is None


def test_the_checksum_is_of_the_source(write):
    import hashlib

    path = write("mine_b.py", "x = 1\n")
    assert resolve("model", "mine_b:x").sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    write("pack_b/__init__.py", "")
    write("pack_b/part.py", "def f(): ...\n")
    first = resolve("model", "pack_b.part:f").sha256
    write("pack_b/other.py", "y = 1\n")
    assert references.hash_source(references.find_source(resolve("model", "pack_b.part:f").value)) != first


def test_a_file_may_import_its_neighbours(write):
    write("sub/near_c.py", "value = 3\n")
    write("sub/mine_c.py", "from near_c import value\n")
    assert resolve("model", "sub/mine_c.py:value").value == 3


@pytest.mark.parametrize(
    ("text", "source", "said"),
    [
        ("./bad_d.py:M", "import torch\n\nfrom nowhere_d import x\n", "bad_d.py:3: ModuleNotFoundError: No module"),
        ("bad_d:M", "import torch\n\nfrom nowhere_d import x\n", "bad_d.py:3: ModuleNotFoundError"),
        ("bad_d:M", "x = 1\ndef f(:\n", "bad_d.py:2: SyntaxError"),
        ("bad_d:M", "def f():\n    return y\nf()\n", "bad_d.py:2: NameError: name 'y' is not defined"),
        ("bad_d:M", "raise SystemExit(0)\n", "bad_d.py:1: it ends the program"),
        ("bad_d:Lgfedavg", "class LGFedAvg: ...\n", "bad_d.py has no 'Lgfedavg'; did you mean 'LGFedAvg'?"),
        ("bad_d:", "", "write module:Name"),
        ("./none_d.py:M", "", "there is no file"),
        ("none_d:M", "", "no module 'none_d' is installed or in"),
    ],
)  # fmt: skip
def test_what_fails_is_one_line_with_its_place(write, text, source, said):
    write("bad_d.py", source)
    with pytest.raises(ExtensionError) as caught:
        resolve("method", text)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"method {text}")
    assert "\n" not in str(caught.value)
    assert ("bad_d" in sys.modules) is ("did you mean" in said)
    if "Error:" in said or "ends" in said:
        assert caught.value.__cause__ is not None  # for --debug


def test_a_file_may_not_have_the_name_of_another_module(write):
    write("json.py", "class M: ...\n")
    with pytest.raises(ExtensionError, match=r"the name of json.py is taken by the module json .*; rename the file"):
        resolve("method", "./json.py:M")


def test_two_files_of_one_name_are_not_mixed_up(write):
    write("one/same_e.py", "class M: ...\n")
    write("two/same_e.py", "class M: ...\n")
    first = resolve("method", "one/same_e.py:M")
    with pytest.raises(ExtensionError, match="is taken by the module same_e"):
        resolve("method", "two/same_e.py:M")
    assert resolve("method", "one/same_e.py:M") is first


def test_plug_ins_are_listed_without_being_loaded_and_loaded_when_asked_for(write, install):
    write("plug_f.py", "class M: ...\n")
    install("method", ("mine", "plug_f:M"), ("fedavg", "plug_f:M"))
    assert list_installed("method") == ["mine"]
    assert list_hidden("method") == ["fedavg (an unknown package)"]
    assert "plug_f" not in sys.modules
    found = find_extension("method", "mine")
    assert (found.name, found.value.__name__) == ("mine", "M")
    assert resolve("method", "mine") is found
    assert find_extension("method", "fedavg") is None


def test_two_plug_ins_of_one_name_are_refused(write, install):
    install("model", ("net", "a_g:M"), ("net", "b_g:M"))
    with pytest.raises(ExtensionError, match="both have one of this name; uninstall one"):
        resolve("model", "net")


def test_unknown_names_get_the_nearest(install):
    install("method", ("plugged", "x:Y"))
    with pytest.raises(InputError, match="unknown method 'pluggedx'; did you mean 'plugged'"):
        resolve("method", "pluggedx")


def test_what_a_file_names_is_not_loaded(write):
    """The folder of a run may come from anybody."""
    write("evil_h.py", "raise RuntimeError('executed')\n")
    for name in ("evil_h:M", "./evil_h.py:M", "os:system"):
        assert find_extension("method", name) is None
    assert "evil_h" not in sys.modules
    assert "name it yourself" in str(references.build_unknown_error("method", "evil_h:M"))


def test_objects_given_in_python_have_names_too(write):
    class Mine:
        pass

    made = register("method", Mine)
    assert made.name == f"{__name__}:test_objects_given_in_python_have_names_too.<locals>.Mine"
    assert find_extension("method", made.name) is made is register("method", Mine)
    assert len(made.sha256) == 64


def test_references_are_shortened_to_what_does_not_depend_on_the_place():
    assert shorten_reference("../x/lg.py:A.B") == "lg:A.B"
    assert shorten_reference("pack.lg:A") == "pack.lg:A"
    assert shorten_reference("fedavg") == "fedavg"
