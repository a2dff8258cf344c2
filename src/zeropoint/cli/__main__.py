"""``python -m zeropoint.cli``"""

from zeropoint.cli import main

if __name__ == "__main__":
    main()
