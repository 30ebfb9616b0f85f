"""The command line of fedco2: thin, one small file a command."""
