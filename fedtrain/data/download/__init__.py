"""Downloads of published data sets, resumed and checked."""
