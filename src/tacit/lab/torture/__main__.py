"""`python -m tacit.lab.torture`; see `make torture`."""

import sys

from tacit.lab.torture import main

if __name__ == "__main__":
    sys.exit(main())
