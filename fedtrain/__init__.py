"""The trainer half of fedco2: federated learning when clients' data differ.

At this version it holds what a trainer stands on: the algebra of names that theory and trainer share (`partition`), the
networks of the paper (`models`), safe readers of its data sets and every skew (`data`). Methods and rounds are to come.
"""
