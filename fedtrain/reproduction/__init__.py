"""Every table and figure of the paper as data, the runs that it takes, and what came of them beside the paper's."""
