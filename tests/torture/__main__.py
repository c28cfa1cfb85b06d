"""`python -m tests.torture`; see `make torture`."""

import sys

from tests.torture import main

if __name__ == "__main__":
    sys.exit(main())
