"""``python -m cli`` is ``fedco2``."""

import sys

from cli.main import main

sys.exit(main())
