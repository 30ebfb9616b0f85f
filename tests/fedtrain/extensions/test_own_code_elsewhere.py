"""Code of one's own where others decide: nodes that allow it, sites that name it, tables of the paper."""

import pytest

import fedtrain
from cli.flower import flower
from cli.main import main
from fedtrain.config.data import DataSettings
from fedtrain.config.references import load_named
from fedtrain.config.schema import parse_config
from fedtrain.extensions.references import find_extension, resolve
from fedtrain.flower.allowed_code import ALLOW_KEY, list_code, load_allowed_code
from fedtrain.flower.sites import SITES_DATASET, build_site
from fedtrain.reproduction.reproduce import plan_reproduction
from fedtrain.reproduction.run_spec import get_sources
from theory.errors import InputError

from .conftest import LG_FEDAVG
from .test_own_watchers import HEAD, LOAD, SIGN

TABLES = {
    "optimizer": ({"local": {"optimizer": "sign_x:SignSGD"}}, "sign_x.py", HEAD + SIGN),
    "dataset": ({"data": {"dataset": "data_x:load"}}, "data_x.py", HEAD + LOAD),
    "method": ({"method": {"name": "lg_x:LGFedAvg"}}, "lg_x.py", LG_FEDAVG),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_node_loads_only_what_its_own_settings_allow(write, kind):
    tables, file, source = TABLES[kind]
    ((_, setting),) = tables.items()
    (name,) = setting.values()
    write(file, source)
    with pytest.raises(InputError, match=f"this node does not allow {kind} '{name}'"):
        load_allowed_code(tables)
    with pytest.raises(InputError, match="does not allow"):
        load_allowed_code(tables, {ALLOW_KEY: "other:Thing"})
    assert find_extension(kind, name) is None
    load_allowed_code(tables, {ALLOW_KEY: f"other:Thing ./{file}:{name.partition(':')[2]}"})
    assert find_extension(kind, name) is not None


@pytest.mark.parametrize("name", ["digits", "sites", "photos.zip", "Adam"])
def test_names_that_are_no_code_need_no_leave(name):
    load_allowed_code({"data": {"dataset": name}, "local": {"optimizer": name}, "method": {"name": "fedavg"}})


def test_what_nodes_of_this_machine_are_to_allow_is_listed_by_file(write):
    write("sign_y.py", HEAD + SIGN)
    write("lg_y.py", LG_FEDAVG)
    load_named(optimizer="sign_y:SignSGD", method="lg_y:LGFedAvg")
    config = parse_config({"local": {"optimizer": "sign_y:SignSGD"}, "method": {"name": "lg_y:LGFedAvg"}})
    assert [one.rpartition("/")[2] for one in list_code(config).split()] == ["lg_y.py:LGFedAvg", "sign_y.py:SignSGD"]


def test_a_site_reads_its_data_with_code_that_it_names_itself(write):
    path = write("site_a.py", HEAD + LOAD.replace('("north", "south")', '("north",)'))
    found = build_site(DataSettings(dataset=SITES_DATASET), path.with_name("site_a.py:load"), "basel")
    assert [client.name for client in found.clients] == ["basel"]
    assert found.classes == ("x", "y", "z")
    two = write("site_b.py", HEAD + LOAD)
    with pytest.raises(InputError, match=r"holds 2 clients \(north, south\); give the node of a site one"):
        build_site(DataSettings(dataset=SITES_DATASET), two.with_name("site_b.py:load"), "basel")


HOW = {"rounds": 1, "seeds": 1, "data": "standin", "settings": {"model.name": "two-layer", "model.width": 4}}


def test_a_method_of_ones_own_is_a_row_of_a_table_of_the_paper(write, tmp_path):
    path = write("lg_z.py", LG_FEDAVG)
    planned = plan_reproduction("T7", methods="fedavg,./lg_z.py:LGFedAvg", out=tmp_path / "out", **HOW)
    assert [row.name for row in planned.plans[0].paper_item.rows] == ["FedAvg", "LG-FedAvg"]
    job = next(job for job in planned.jobs.values() if "lg_z" in job.folder.name)
    assert ":" not in job.folder.name
    assert job.build_keywords(1)["settings"]["method.name"] == f"{path}:LGFedAvg"
    assert f"{path}:LGFedAvg" in job.build_arguments(1)
    job.folder.mkdir(parents=True)
    (job.folder / "config.toml").touch()
    assert job.build_keywords(1)["method"] == f"{path}:LGFedAvg"  # a folder makes nobody load code
    assert job.build_arguments(1)[:5] == ["train", "--resume", str(job.folder), "--method", f"{path}:LGFedAvg"]


def test_a_method_called_like_one_of_ours_is_told_apart_in_a_table(write, tmp_path):
    write("lg_t.py", LG_FEDAVG)
    planned = plan_reproduction("T7", methods="lgfedavg,lg_t:LGFedAvg,fedavg", out=tmp_path / "out", **HOW)
    names = [row.name for row in planned.plans[0].paper_item.rows]
    assert names == ["FedAvg", "LG-FedAvg (lgfedavg)", "LG-FedAvg (lg_t:LGFedAvg)"]


def test_what_to_do_next_with_a_run_names_its_code_again(write, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
    path = write("lg_s.py", LG_FEDAVG)
    small = ["model.width=4", "data.train_size=4", "data.percent=none", "local.batch_size=4"]
    settings = [word for one in small for word in ("--set", one)]
    how = ["--dataset", "digits", "--data", "standin", "--model", "two-layer", "--rounds", "1", *settings]
    assert main(["train", *how, "--method", "./lg_s.py:LGFedAvg", "--out", "run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"fedco2 predict run --client mnist --method {path}:LGFedAvg IMAGE" in said
    assert main(["train", *how, "--method", "fedavg", "--out", "ours"]) == 0
    assert "fedco2 predict ours --client mnist IMAGE" in " ".join(capsys.readouterr().out.split())


def test_a_changed_method_is_another_run(write, forget):
    write("lg_w.py", LG_FEDAVG)
    spec = next(iter(plan_reproduction("T7", methods="lg_w:LGFedAvg", **HOW).jobs.values())).spec
    before = spec.identity
    forget()
    write("lg_w.py", LG_FEDAVG + "# changed\n")
    after = next(iter(plan_reproduction("T7", methods="lg_w:LGFedAvg", **HOW).jobs.values())).spec
    assert after.identity != before


def test_only_code_that_decides_numbers_tells_runs_apart():
    found = [{"kind": "callback", "name": "a:B", "sha256": "1"}, {"kind": "model", "name": "c:D", "sha256": "2"}]
    assert get_sources(found) == {"model": "2"}


def test_nineteen_methods_are_rows_of_table_seven():
    rows = plan_reproduction("T7", methods=list(fedtrain.METHODS), **HOW).plans[0].paper_item.rows
    assert {row.method for row in rows} == set(fedtrain.METHODS)
    assert len({row.name for row in rows}) == len(rows) >= 19


def test_two_files_of_one_name_are_told_apart(write, tmp_path):
    write("lg_v.py", LG_FEDAVG)
    resolve("method", "./lg_v.py:LGFedAvg")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lg_v.py").write_text(LG_FEDAVG)
    with pytest.raises(InputError, match=r"the name of lg_v.py is taken by the module lg_v"):
        resolve("method", "./other/lg_v.py:LGFedAvg")


def test_who_watches_is_named_where_the_server_is():
    names = {name: {option.name for option in flower.commands[name].params} for name in ("simulate", "run")}
    assert names["simulate"] - names["run"] >= {"track", "callbacks"}


def test_sgd_is_sgd_however_it_is_written(toy):
    one, other = (toy.build_client_trainer(fedtrain.FedAvg(), optimizer=name) for name in ("sgd", "SGD"))
    assert one.step_class is other.step_class
