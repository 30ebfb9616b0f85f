"""The trainer half of fedco2: federated learning when clients' data differ.

| | |
|---|---|
| `partition` | names of the parts of a module: what a method shares |
| `methods` | nine methods, each one small file |
| `protocol`, `bench`, `fleets` | the messages and the loop; one client's half of a round; where clients run |
| `models`, `data` | the networks; data sets, skews, stand-ins |
| `config`, `presets`, `experiment` | all that decides a run; the paper's protocols; a configuration brought to life |
| `run`, `folder`, `manifest`, `checkpoint` | rounds made, written down, and at rest |
| `selection`, `ledger`, `report` | which accuracy is reported; bytes; figures |
| `about` | what can be told before anything is trained |
| `use` | trained models put to use, for clients known and new |
"""
