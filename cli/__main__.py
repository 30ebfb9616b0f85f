"""``python -m cli`` is ``fedco2``, and a rank of several processes."""

import os
import sys

from cli.main import main

code = main()
if "RANK" in os.environ:
    from fedtrain.fleets.group import leave

    leave(code)
sys.exit(code)
