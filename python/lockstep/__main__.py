"""``python -m lockstep ...``: the command line, with this interpreter's installation."""

import os
import sys
import sysconfig

PLACES = (
    os.path.join(os.path.dirname(__file__), "bin", "lockstep"),
    os.path.join(sysconfig.get_path("scripts"), "lockstep"),
    os.path.join(os.path.dirname(sys.executable), "lockstep"),
)


def main() -> None:
    """Replaces this process by the ``lockstep`` executable."""
    for place in PLACES:
        if os.access(place, os.X_OK):
            os.execv(place, ["lockstep", *sys.argv[1:]])
    raise SystemExit(f"lockstep: the command line program is not installed; looked for {', '.join(PLACES)}")


if __name__ == "__main__":
    main()
