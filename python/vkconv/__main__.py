"""python -m vkconv info | explain | bench | tune | demo"""

from __future__ import annotations

import sys

from vkconv._cli import main

sys.exit(main())
