"""A program that cannot be imported: it ends its process."""

import os
import sys

sys.stderr.write("out of luck\n")
sys.stderr.flush()
os._exit(5)
