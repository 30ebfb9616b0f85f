"""The trainer half of fedco2: federated learning when clients' data differ.

At this version it holds only the algebra of names (`fedtrain.partition`) that theory and trainer share:
which entries of a state dict are averaged and which stay personal. Methods and the round loop are to come.
"""
