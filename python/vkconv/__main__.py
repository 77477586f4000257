"""python -m vkconv info | explain PROBLEM | demo"""

from __future__ import annotations

import sys

from vkconv._cli import main

sys.exit(main())
