"""The trainer half of fedco2: federated learning when clients' data differ.

| | |
|---|---|
| `partition` | names of the parts of a module: what a method shares |
| `methods` | nine methods, each one small file |
| `protocol`, `bench`, `fleets` | the messages and the loop; one client's half of a round; where clients run |
| `models`, `data` | the networks; data sets, skews, stand-ins |
| `config`, `presets`, `experiment` | all that decides a run; the paper's protocols; a configuration brought to life |
| `run`, `folder`, `checkpoint`, `selection`, `ledger`, `report` | rounds written down, results by named rules, bytes, figures |
| `personal`, `newcomer` | trained models put to use, for clients known and new |
"""
