"""``python -m fedtrain.train_rank REQUEST.json``: one of the processes that ``fedtrain.train(nproc=...)`` starts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from fedtrain.backends.distributed.process_group import Rank, exit_process
from fedtrain.errors import TrainingError
from fedtrain.training import train
from theory.errors import InputError


def main() -> None:
    """Train as this rank; rank 0 speaks for all."""
    rank = Rank.from_environment()
    if rank is not None and rank.rank:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - to the end of the process
    code = 0
    try:
        train(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), quiet=bool(rank and rank.rank))
    except (InputError, TrainingError) as error:
        print(f"error: {error}", file=sys.stderr)
        code = 1
    exit_process(code)


if __name__ == "__main__":
    main()
