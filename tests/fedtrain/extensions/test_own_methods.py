"""A stranger's method: trained by reference, class or instance, written down with its checksum, refused in one line."""

import hashlib
import json

import pytest

import fedtrain
from fedtrain.config.schema import parse_config, serialize_config
from fedtrain.errors import TrainingError
from fedtrain.extensions.errors import ExtensionError
from fedtrain.extensions.references import resolve
from fedtrain.methods.own import check_method_class
from fedtrain.report.plot_style import METHOD_STYLES, OTHER_STYLES, assign_other_styles
from fedtrain.report.records import read_record
from theory.errors import InputError

from .conftest import LG_FEDAVG

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture
def train(toy, tmp_path):
    """A tiny run."""

    def now(method, out="run", **more):
        how = {"clients": toy.build_clients(), "model": toy.build_net, "rounds": 1, "batch_size": 8, "quiet": True}
        return fedtrain.train(method=method, out=tmp_path / out, **(how | more))

    return now


def test_reference_class_and_instance_train_the_same(write, train):
    path = write("lg_a.py", LG_FEDAVG)
    by_name, by_file = train("lg_a:LGFedAvg", "one"), train(f"{path}:LGFedAvg", "two")
    kind = resolve("method", "lg_a:LGFedAvg").value
    by_class, by_instance = train(kind, "three"), train(kind(depth=1), "four")
    runs = [by_name, by_file, by_class, by_instance]
    assert {run.config.method_name for run in runs} == {"lg_a:LGFedAvg"}
    assert [run.rows for run in runs] == [by_name.rows] * 4
    assert by_name.trained.trainer.shared_names == frozenset(
        name for name in by_name.trained.trainer.module.state_dict() if name.startswith("head.")
    )
    (about, model) = by_file.manifest["extensions"]
    assert about == {
        "kind": "method",
        "name": "lg_a:LGFedAvg",
        "title": "LG-FedAvg",
        "file": str(path),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    assert model["kind"] == "model"


def test_options_are_the_fields(write, train):
    write("lg_b.py", LG_FEDAVG)
    config = train("lg_b:LGFedAvg", settings={"method.depth": 3}).config
    assert config.method.depth == 3
    assert parse_config(serialize_config(config)) == config
    with pytest.raises(InputError, match=r"unknown key 'dept' in \[method\] of LG-FedAvg; did you mean 'depth'"):
        train("lg_b:LGFedAvg", "other", settings={"method.dept": 3})


def test_a_folder_is_opened_by_who_names_the_method_again(write, train, toy, forget):
    write("lg_c.py", LG_FEDAVG)
    path = train("lg_c:LGFedAvg").path
    forget()
    with pytest.raises(InputError, match="no file or message makes fedco2 load code"):
        fedtrain.load_run(path).config  # noqa: B018
    assert read_record(path).title == "LG-FedAvg"  # a report needs no code
    run = fedtrain.load_run(path, method="lg_c:LGFedAvg", model=toy.build_net)
    assert run.evaluate(clients=toy.build_clients())


def test_a_run_goes_on_and_says_that_the_source_has_changed(write, train, toy, forget, capsys):
    write("lg_d.py", LG_FEDAVG)
    train("lg_d:LGFedAvg")
    forget()
    write("lg_d.py", LG_FEDAVG + "# changed\n")
    how = {"clients": toy.build_clients(), "model": toy.build_net, "rounds": 2}
    with pytest.raises(InputError, match="name it yourself"):
        fedtrain.train(resume="run", **how)
    run = fedtrain.train(resume="run", method="./lg_d.py:LGFedAvg", **how)
    assert "the source of method lg_d:LGFedAvg has changed since" in " ".join(capsys.readouterr().out.split())
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert manifest["extensions"][0]["sha256"] != manifest["resumed"][0]["extensions"][0]["sha256"]
    assert run.summary["rounds"] == 2


def test_plug_ins_need_not_be_named_again(write, train, install, forget):
    write("lg_e.py", LG_FEDAVG)
    install("method", ("plugged", "lg_e:LGFedAvg"))
    path = train("plugged").path
    forget()
    assert fedtrain.load_run(path).config.method_name == "plugged"


BROKEN = {
    "def make(): ...": "is a function; name a subclass of fedtrain.Method",
    "class LGFedAvg: ...": "is the class LGFedAvg; name a subclass of fedtrain.Method",
    "LGFedAvg = 3": "is an instance of int; name a subclass",
    "from fedtrain.methods import Method\nclass LGFedAvg(Method): ...": (
        "(lg_f.py:2) does not define branches, build, loss, shared"
    ),
    LG_FEDAVG.replace("@dataclass(frozen=True)\n", ""): "is no dataclass; write @dataclass(frozen=True) above it",
    LG_FEDAVG.replace("depth: int = 1", "depth: list = ()"): "option depth is of type <class 'list'>",
    LG_FEDAVG.replace("depth: int = 1", "depth: int | str = 1"): "option depth is of type int | str",
    LG_FEDAVG.replace("depth: int = 1", "depth: 'Tensor' = 1"): "NameError: name 'Tensor' is not defined",
    LG_FEDAVG + "    def __post_init__(self):\n        self.nothing\n": "lg_f.py:21: AttributeError",
    "raise ValueError('never')": "lg_f.py:1: ValueError: never",
}  # fmt: skip


@pytest.mark.parametrize(("source", "said"), BROKEN.items(), ids=range(len(BROKEN)))
def test_what_cannot_be_a_method_is_refused_with_its_place(write, source, said):
    write("lg_f.py", source.replace("def make", "def LGFedAvg"))
    with pytest.raises(ExtensionError) as caught:
        check_method_class(resolve("method", "lg_f:LGFedAvg"))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_optional_option_is_fine(write):
    write("lg_g.py", LG_FEDAVG.replace("depth: int = 1", "depth: int | None = None"))
    check_method_class(resolve("method", "lg_g:LGFedAvg"))


def test_a_loss_that_fails_names_its_line(write, train):
    write(
        "lg_h.py", LG_FEDAVG + "\n    def loss(self, module, batch, context):\n        return module.neck(batch[0])\n"
    )
    with pytest.raises(ExtensionError, match=r"LG-FedAvg failed: lg_h.py:22: AttributeError: .*no attribute 'neck'"):
        train("lg_h:LGFedAvg")


SAID = {
    "        return module(batch[0]).sum() * float('nan')\n": r"LG-FedAvg \(lg_i.py:21\): loss is nan on random inputs",
    "        raise SystemExit(3)\n": r"LG-FedAvg failed: lg_i.py:22: it ends the program",
}


@pytest.mark.parametrize(("body", "said"), SAID.items(), ids=range(len(SAID)))
def test_a_loss_that_is_no_number_or_ends_the_program_is_found_before_training(write, train, tmp_path, body, said):
    write("lg_i.py", LG_FEDAVG + "\n    def loss(self, module, batch, context):\n" + body)
    with pytest.raises(ExtensionError, match=said):
        train("lg_i:LGFedAvg")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("{'a/b': module(x)}", "a branch cannot be called 'a/b'"),
        ("{3: module(x)}", "a branch cannot be called 3"),
        ("{'fused': module(x)}", "and not 'fused', which is the prediction"),
        ("{'model': module(x) / 0 * 0}", r"branches\['model'\] has NaN for random inputs"),
    ],
)
def test_branches_that_no_table_can_show_are_refused(write, train, answer, said):
    write("lg_j.py", LG_FEDAVG + f"\n    def branches(self, module, x, context):\n        return {answer}\n")
    with pytest.raises(ExtensionError, match=r"LG-FedAvg \(lg_j.py:21\): .*" + said):
        train("lg_j:LGFedAvg")


LATE = " * (1.0 if context.round < 2 else float('nan'))"
LOST = {
    f"def loss(self, module, batch, context): return super().loss(module, batch, context){LATE}": "3: the loss is nan",
    f"def branches(self, module, x, context): return {{'b': module(x){LATE}}}": "2: the test loss of fused is nan",
    "def finish(self, module, context): module.head[-1].weight.data.log_()": "1: its weights are not finite any more",
}


@pytest.mark.parametrize(("function", "said"), LOST.items(), ids=range(len(LOST)))
def test_numbers_that_are_lost_in_training_name_the_function_too(write, train, function, said):
    write("lg_k.py", f"{LG_FEDAVG}\n    {function}\n")
    with pytest.raises(TrainingError, match=rf"round {said} \(lg_k.py:21\); lower local.lr"):
        train("lg_k:LGFedAvg", rounds=4)


def test_each_method_outside_fedco2_has_a_colour_of_its_own():
    alone, several = assign_other_styles(["lg:LGFedAvg"]), assign_other_styles(["lg:LGFedAvg", "a:B", "c:D", "e:F"])
    assert len({style.colour for style in several.values()}) == 4
    assert alone["lg:LGFedAvg"].colour not in {style.colour for style in METHOD_STYLES.values()}
    assert len(assign_other_styles(map(str, range(20)))) == 20
    assert len({style.colour for style in OTHER_STYLES}) == len(OTHER_STYLES)
