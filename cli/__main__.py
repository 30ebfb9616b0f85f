"""``python -m cli`` is ``fedco2``, and a rank of several processes."""

import os
import sys

from cli.main import main

code = main()
if "RANK" in os.environ:
    from fedtrain.backends.distributed.process_group import exit_process

    exit_process(code)
sys.exit(code)
